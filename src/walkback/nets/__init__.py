"""Networks: stem, residual blocks, head, written as pure functions of their leaves."""

from walkback.core.catalog import Catalog

ARCHS = Catalog(kind="architecture", package="walkback.nets.archs", attribute="ARCH", group="walkback.archs")
