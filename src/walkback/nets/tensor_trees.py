"""Nested structures of tensors: a tensor, or dicts, tuples and lists of tensors, as models take and return them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same nested structure with `function` applied to every tensor; lists become tuples, other values stay."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: map_tensors(function, part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(map_tensors(function, part) for part in value)
    return value


def cast(value: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Inputs on the model's device, floats in its precision; inference tensors are cloned, so that autograd works."""

    def to_device(x: Tensor) -> Tensor:
        found = x.to(device, dtype) if x.is_floating_point() else x.to(device)
        return found.clone() if found.is_inference() else found

    return map_tensors(to_device, value)


def tensor_leaves(x: Any) -> list[Tensor]:
    """Every tensor of a nested structure, in order."""
    if isinstance(x, Tensor):
        return [x]
    return [leaf for part in (x.values() if isinstance(x, dict) else x) for leaf in tensor_leaves(part)]
