"""Pitfalls of alignment measurement: small programs that compute the wrong value, the right value and the error."""

from walkback.core.catalog import Catalog

CASES = Catalog(kind="pitfall", package="walkback.pitfalls.cases", attribute="run", group="walkback.pitfalls")
"""One file for each, named `p<number>_<name>`; its `run()` returns a PitfallOutcome."""
