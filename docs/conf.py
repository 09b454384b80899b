"""Sphinx settings."""

from walkback.core.version import __version__

project = "walkback"
author = "The walkback authors"
copyright = "2026, the walkback authors"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
html_theme = "furo"
html_title = "walkback"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
