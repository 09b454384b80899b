"""Sweeps: a grid from a file, its fleets handed to workers on this machine or on others."""
