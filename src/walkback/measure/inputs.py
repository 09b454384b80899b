"""A model's inputs, whatever they are made of: a tensor, or dicts, tuples and lists of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nest with `function` applied to every tensor; lists become tuples, other values stay."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(function, part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map_tensors(function, part) for part in value)
    return value


def cast(value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Inputs on the model's device, floats in its precision."""
    return map_tensors(lambda x: x.to(device, dtype) if x.is_floating_point() else x.to(device), value)
