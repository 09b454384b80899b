"""A run on disk: training it, its checkpoints, and finding runs in a folder."""
