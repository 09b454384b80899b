"""The papers' experiments: studies, published figures, reproduction and quoting.

A plug-in of walkback: its commands, benches and studies are registered as entry points in pyproject.toml.
walkback never imports it.
"""

from walkback.core.catalog import Catalog

STUDIES = Catalog(kind="study", package="walkback_papers.studies", attribute="STUDY", group="walkback.studies")
