"""Nested state (what `state_dict` returns) as a JSON skeleton and named arrays, and back; no pickle.

The skeleton has the structure and all plain values; a tensor or array in it is a reference to a named array. What is
neither is refused, and the error names its key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.reading.regular_files import Fault
from walkback.runs.store import Arrays

_KIND = "kind"
"""The key that marks an object of the skeleton as something else than a dict with text keys."""
_BITS = {1: torch.uint8, 2: torch.int16}
"""Integer types that store formats which numpy does not have, by their size in bytes."""
_DICTS: dict[str, type] = {"counter": Counter, "dict": dict}


def state_to_arrays(state: Any, name: str, prefix: str = "") -> tuple[Any, Arrays]:
    """The JSON skeleton of `state`, and its arrays, whose names begin with `prefix`. `name` is what errors call it."""
    encoder = _Encoder(name, prefix)
    return encoder.encode(state, ""), encoder.arrays


def state_from_arrays(skeleton: Any, arrays: Mapping[str, np.ndarray], device: torch.device | None = None) -> Any:
    """The state that `state_to_arrays` took apart, with its tensors on `device` (default: the CPU)."""
    if isinstance(skeleton, list):
        return [state_from_arrays(item, arrays, device) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    kind = skeleton.get(_KIND)
    if kind is None:
        return {key: state_from_arrays(value, arrays, device) for key, value in skeleton.items()}
    if kind == "tensor":
        found = torch.from_numpy(np.array(arrays[skeleton["name"]]))
        dtype: torch.dtype = getattr(torch, skeleton["dtype"])
        return (found if found.dtype == dtype else found.view(dtype)).to(device)
    if kind == "array":
        return np.array(arrays[skeleton["name"]])
    if kind == "number":
        return np.array(arrays[skeleton["name"]])[()]
    if kind == "float":
        return float(skeleton["value"])
    items = state_from_arrays(skeleton["items"], arrays, device)
    return tuple(items) if kind == "tuple" else _DICTS[kind](dict(map(tuple, items)))


def checked_state(
    skeleton: Any, arrays: Mapping[str, np.ndarray], fault: Fault, device: torch.device | None = None
) -> Any:
    """The same for what was read from a file, which may be damaged."""
    try:
        return state_from_arrays(skeleton, arrays, device)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise fault(f"has a state that does not fit its arrays ({type(error).__name__}: {error})") from error


class _Encoder:
    def __init__(self, name: str, prefix: str):
        self._name, self._prefix = name, prefix
        self.arrays: Arrays = {}

    def encode(self, value: Any, key: str) -> Any:
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {_KIND: "float", "value": str(value)}
        if isinstance(value, Tensor):
            return self._tensor(value, key)
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            kind = "array" if isinstance(value, np.ndarray) else "number"
            return {_KIND: kind, "name": self._store(np.array(value), key)}
        if isinstance(value, Mapping):
            return self._mapping(value, key)
        if isinstance(value, list | tuple):
            items = [self.encode(item, _joined(key, index)) for index, item in enumerate(value)]
            return items if isinstance(value, list) else {_KIND: "tuple", "items": items}
        raise InputError(
            f"'{key}' of {self._name} is a {type(value).__name__}, which cannot be stored. Expected tensors, arrays, "
            "numbers, texts, and lists, tuples and dicts of them: leave it out, or store it as one of these."
        )

    def _mapping(self, value: Mapping[Any, Any], key: str) -> Any:
        if not isinstance(value, Counter) and all(isinstance(each, str) and each != _KIND for each in value):
            return {each: self.encode(item, _joined(key, each)) for each, item in value.items()}
        pairs = [
            [self.encode(each, _joined(key, each)), self.encode(item, _joined(key, each))]
            for each, item in value.items()
        ]
        return {_KIND: "counter" if isinstance(value, Counter) else "dict", "items": pairs}

    def _tensor(self, value: Tensor, key: str) -> dict[str, str]:
        kinds = {
            "meta": value.is_meta,
            "quantised": value.is_quantized,
            "complex": value.is_complex(),
            "sparse": value.layout != torch.strided,
        }
        kind = next((kind for kind, is_so in kinds.items() if is_so), None)
        if kind is not None:
            raise InputError(f"'{key}' of {self._name} is a {kind} tensor, which cannot be stored. Store a dense one.")
        plain = value.detach().cpu().contiguous()
        try:
            array = plain.numpy()
        except TypeError:  # bfloat16 and the 8-bit formats.
            array = plain.view(_BITS[plain.element_size()]).numpy()
        return {
            _KIND: "tensor",
            "name": self._store(np.array(array), key),
            "dtype": str(value.dtype).removeprefix("torch."),
        }

    def _store(self, array: np.ndarray, key: str) -> str:
        path = self._prefix + (key or "value")
        if path in self.arrays:
            raise InputError(f"{self._name} has two entries called '{key}'. Rename one of them.")
        self.arrays[path] = array
        return path


def _joined(key: str, part: Any) -> str:
    return f"{key}.{part}" if key else str(part)
