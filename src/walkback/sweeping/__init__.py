"""Sweeps: read a grid from a file and train its fleets on workers, on this machine or on others."""
