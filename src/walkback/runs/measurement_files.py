"""The names of the files of measurements in a run's folder."""

from __future__ import annotations

ANSWERS = "answers.npz"
"""Which test samples a run gets right: all that is needed of a baseline."""
FUNCTIONAL = "functional.npz"
EPOCHS_FOLDER = "epochs"
"""Folder of the measurements taken while a run trained."""


def epoch_file(epoch: int) -> str:
    """The file of the measurements after an epoch, relative to the run's folder."""
    return f"{EPOCHS_FOLDER}/{epoch:04d}.npz"
