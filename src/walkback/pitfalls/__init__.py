"""Pitfalls of alignment measurement: small reproducers of the wrong way, the right way and the size of the error."""

from walkback.core.catalog import Catalog

CASES = Catalog(kind="pitfall", package="walkback.pitfalls.cases", attribute="run", group="walkback.pitfalls")
"""One file for each, called `p<number>_<name>`; its `run()` returns an outcome."""
