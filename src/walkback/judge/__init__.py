"""Checks, claims and verdicts: pure functions of stored measurements. Nothing here imports torch."""
