"""The catalog of checks: one file each; the file's name is the check's name."""

from walkback.core.catalog import Catalog

CHECKS = Catalog(kind="check", package="walkback.judge.checks", attribute="CHECK", group="walkback.checks")
