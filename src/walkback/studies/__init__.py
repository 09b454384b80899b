"""Runs on disk, and what is done with them."""
