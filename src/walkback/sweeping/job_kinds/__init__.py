"""Kinds of jobs, one module each; other packages add kinds through entry points of the group `walkback.jobs`.

A kind's `run(job, note)` does the job, which is JSON data, and returns whether it is complete. It calls `note` with
messages for the user.
"""

from walkback.core.catalog import Catalog

JOBS = Catalog(kind="kind of job", package="walkback.sweeping.job_kinds", attribute="run", group="walkback.jobs")
