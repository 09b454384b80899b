"""Watching a training that someone else runs: detectors every few steps, an early stop, and the card at the end.

The journal and what reads it need no torch; libraries with trainers of their own are imported by who asks for them.
"""
