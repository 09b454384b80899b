"""The one place that knows the version."""

__version__ = "0.4.0"
