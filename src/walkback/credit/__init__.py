"""Credit rules: they compute the credits a_0..a_L from one forward pass with constant parameters."""

from walkback.core.catalog import Catalog

RULES = Catalog(kind="method", package="walkback.credit.rules", attribute="RULE", group="walkback.rules")
