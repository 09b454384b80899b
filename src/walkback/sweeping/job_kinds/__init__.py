"""What a worker can be given to do, one module for each kind; other packages add kinds as `walkback.jobs`.

A kind's `run(job, note)` does the job, which is plain JSON, and returns whether all of it is done. It calls `note` with
what the user should be told.
"""

from walkback.core.catalog import Catalog

JOBS = Catalog(kind="kind of job", package="walkback.sweeping.job_kinds", attribute="run", group="walkback.jobs")
