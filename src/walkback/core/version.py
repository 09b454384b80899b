"""The version of walkback; defined here only."""

__version__ = "0.13.0"
