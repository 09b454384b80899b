"""Runs on disk, what is measured and judged of them, and the studies made of many."""

from walkback.core.catalog import Catalog

STUDIES = Catalog(kind="study", package="walkback.studies.catalog", attribute="STUDY", group="walkback.studies")
