"""Networks: stem, residual blocks and head, written as pure functions of named parameters (leaves)."""

from walkback.core.catalog import Catalog

ARCHS = Catalog(kind="architecture", package="walkback.nets.archs", attribute="ARCH", group="walkback.archs")
