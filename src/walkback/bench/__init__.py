"""Timings. What is compared is timed alternately in one run, so that ratios are valid on a busy machine too."""

from walkback.core.catalog import Catalog

BENCHES = Catalog(kind="bench", package="walkback.bench.benches", attribute="run", group="walkback.benches")
