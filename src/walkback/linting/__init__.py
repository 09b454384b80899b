"""The linter: finds pitfalls of alignment measurement in a user's evaluation code, without running it."""

from walkback.core.catalog import Catalog

LINTS = Catalog(kind="lint rule", package="walkback.linting.rules", attribute="RULE", group="walkback.lint_rules")
