"""The names of the files of measurements in a run's folder."""

from __future__ import annotations

ANSWERS = "answers.npz"
"""Which test samples a run gets right: all that is needed of one that others are held against."""
FUNCTIONAL = "functional.npz"
EPOCHS_FOLDER = "epochs"
"""Folder of a run's measurements while it trained."""


def epoch_file(epoch: int) -> str:
    """The file, in a run's folder, of what was measured after an epoch."""
    return f"{EPOCHS_FOLDER}/{epoch:04d}.npz"
