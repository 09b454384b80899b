"""The catalog of data sets."""

from walkback.core.catalog import Catalog

DATA_SETS = Catalog(kind="data set", package="walkback.data.sets", attribute="DATA_SET", group="walkback.data")
