"""`python -m walkback`."""

from walkback.cli.main import entry

entry()
