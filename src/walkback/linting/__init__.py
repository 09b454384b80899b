"""The linter: finds in a user's own evaluation code those pitfalls of alignment measurement that can be seen in it."""

from walkback.core.catalog import Catalog

LINTS = Catalog(kind="lint rule", package="walkback.linting.rules", attribute="RULE", group="walkback.lint_rules")
