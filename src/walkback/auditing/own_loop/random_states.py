"""The states of the global random number generators, taken and put back."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """Seed torch (every device), numpy and Python's `random`."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def random_states() -> dict[str, Any]:
    """The states of torch's CPU and CUDA generators, of numpy's and of Python's."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": np.random.get_state(legacy=True),
        "python": random.getstate(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Continue the generators where `random_states` took them. A machine with fewer GPUs continues those it has."""
    torch.set_rng_state(states["torch"])
    for index, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state, index)
    np.random.set_state(states["numpy"])
    random.setstate(states["python"])
