"""The catalog of checks: one file for each, and the file's name is the check's name."""

from walkback.core.catalog import Catalog

CHECKS = Catalog(kind="check", package="walkback.judge.checks", attribute="CHECK", group="walkback.checks")
