"""Shared foundations: errors, catalogs, settings, configuration, random streams, files. Imports no torch."""
