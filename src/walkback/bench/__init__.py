"""Timings: what is compared is timed in turn in one run, so that only ratios need to be believed."""

from walkback.core.catalog import Catalog

BENCHES = Catalog(kind="bench", package="walkback.bench.benches", attribute="run", group="walkback.benches")
