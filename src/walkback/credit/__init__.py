"""Credit rules: how the credits a_0..a_L are made from one frozen forward pass."""

from walkback.core.catalog import Catalog

RULES = Catalog(kind="method", package="walkback.credit.rules", attribute="RULE", group="walkback.rules")
