"""A model's inputs: a tensor, or dicts, tuples and lists of tensors.

Evaluation batches are joined, checked and split into groups of 128 here, before a model is run on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, overload

import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.measurements import GROUP
from walkback.nets.tensor_trees import map_tensors, tensor_leaves

WANTED_GROUPS, MIN_GROUPS = 8, 2
"""How many disjoint groups of samples are recommended, and how many are required."""

SampleGroup = tuple[Any, Tensor | None]
"""Inputs and labels."""


class Groups(Sequence[SampleGroup]):
    """Disjoint groups of samples."""

    def __init__(self, groups: Sequence[SampleGroup], repeats: int = 0):
        """`repeats` is the number of samples that repeat an earlier one, where that was allowed."""
        self._groups = groups
        self.repeats = repeats

    def __len__(self) -> int:
        return len(self._groups)

    @overload
    def __getitem__(self, index: int) -> SampleGroup: ...
    @overload
    def __getitem__(self, index: slice) -> Groups: ...
    def __getitem__(self, index: int | slice) -> SampleGroup | Groups:
        return Groups(self._groups[index]) if isinstance(index, slice) else self._groups[index]

    @cached_property
    def sample_hash(self) -> str:
        """The hash of all samples and labels, in their order."""
        state = hashlib.sha256()
        for x, y in self._groups:
            for leaf in [*tensor_leaves(x), *([y] if y is not None else [])]:
                state.update(_bytes(leaf).numpy().data)
        return state.hexdigest()


def pick(value: Any, rows: Tensor) -> Any:
    """Some samples of a group."""
    return map_tensors(lambda leaf: leaf[rows.to(leaf.device)], value)


def regroup(batches: Iterable[Any], *, distinct: bool | None = None) -> Groups:
    """All samples in order, split into groups of 128; the remainder is a smaller last group.

    Refused are samples of different structure, fewer than two groups, numbers that are not finite, and repeated
    samples, since groups are compared with each other as independent ones. `distinct=True` says that the samples are
    known to be different rows of one data set, so that equal rows are allowed; with `distinct=False` repeated samples
    are allowed too, and counted.
    """
    x, y = joined_samples(batches)
    count = _length(x)
    _require_enough(count)
    _require_finite(x if y is None else (x, y))
    repeats = [] if distinct else _repeated(x, y)
    if repeats and distinct is None:
        raise _repeats_error(repeats, count)
    starts = range(0, count, GROUP)
    groups = [(_group_from(x, start), None if y is None else _group_from(y, start)) for start in starts]
    return Groups(groups, len(repeats))


def joined_samples(batches: Iterable[Any]) -> SampleGroup:
    """All samples in order as one batch; refused if they do not fit together."""
    pairs = [_pair(batch) for batch in batches]
    if not pairs:
        raise InputError(f"No evaluation batches were given. Give at least {WANTED_GROUPS} groups of {GROUP} samples.")
    for pair in pairs:
        map_tensors(_require_dense, pair)
    try:
        for index, (x, _) in enumerate(pairs):
            if _length(x) == 0:
                raise InputError(f"Evaluation batch {index} (counted from 0) is empty. Leave it out.")
        x = join([x for x, _ in pairs])
        y = None if pairs[0][1] is None else torch.cat([torch.as_tensor(y) for _, y in pairs])
    except (RuntimeError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"The evaluation batches do not fit together: {error}. Give samples of one shape.") from error
    if y is not None and len(y) != _length(x):
        raise InputError(f"The evaluation batches hold {_length(x)} samples but {len(y)} labels.")
    return x, y


def _require_dense(leaf: Tensor) -> Tensor:
    """The tensor itself; refused if it holds no numbers, or not as a dense array."""
    if leaf.is_meta:
        raise InputError("The evaluation batches are on the meta device and hold no numbers. Give real samples.")
    kinds = {"quantised": leaf.is_quantized, "nested": leaf.is_nested, "sparse": leaf.layout != torch.strided}
    kind = next((name for name, is_so in kinds.items() if is_so), None)
    if kind is not None:
        advice = {"quantised": "x.dequantize()", "nested": "x.to_padded_tensor(0)", "sparse": "x.to_dense()"}[kind]
        raise InputError(f"The evaluation batches hold {kind} tensors; expected dense ones. Give {advice}.")
    return leaf


def _require_enough(count: int) -> None:
    if count < MIN_GROUPS * GROUP:
        raise InputError(
            f"The evaluation batches hold {count} samples: fewer than the {MIN_GROUPS} groups of {GROUP} that a "
            f"measurement needs. Give {WANTED_GROUPS} groups ({WANTED_GROUPS * GROUP} samples) or more."
        )


def _require_finite(x: Any) -> None:
    for leaf in tensor_leaves(x):
        bad = ~leaf.isfinite().flatten(1).all(1) if leaf.ndim > 1 else ~leaf.isfinite()
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(leaf)} evaluation samples hold NaN or infinity; the first is sample "
                f"{int(bad.nonzero()[0])}, counted from 0. Repair the data or leave these samples out."
            )


def _repeated(x: Any, y: Tensor | None) -> list[tuple[int, int]]:
    """The samples that repeat an earlier one, each as (earlier, index); equal are samples whose inputs and labels
    are."""
    parts = [_bytes(part).numpy() for part in [*tensor_leaves(x), *([] if y is None else [y])]]
    first: dict[int, int] = {}
    repeats = []
    for index in range(len(parts[0])):
        # Python's own hash of the bytes is fast; if two are equal, the bytes themselves are compared.
        earlier = first.setdefault(hash(tuple(part[index].tobytes() for part in parts)), index)
        if earlier != index and all((part[earlier] == part[index]).all() for part in parts):
            repeats.append((earlier, index))
    return repeats


def _repeats_error(repeats: Sequence[tuple[int, int]], count: int) -> InputError:
    earlier, index = repeats[0]
    return InputError(
        f"{len(repeats)} of {count} evaluation samples repeat an earlier one, input and label alike; "
        f"first, sample {index} (group {index // GROUP}) is sample {earlier} (group {earlier // GROUP}) again, "
        "counted from 0. Groups must be disjoint: give each sample once. A loader that starts over, samples with "
        "replacement or pads its last batch makes repeats; where the data set itself has them, drop them, or say "
        "distinct=False, which the card records."
    )


def _bytes(leaf: Tensor) -> Tensor:
    """One row of raw bytes per sample, for any number format."""
    return leaf.detach().cpu().contiguous().reshape(len(leaf), -1).view(torch.uint8)


def _group_from(value: Any, start: int) -> Any:
    return map_tensors(lambda leaf: leaf[start : start + GROUP], value)


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, dict):
        label = next((key for key in ("labels", "label", "y") if key in batch), None)
        return {key: value for key, value in batch.items() if key != label}, batch[label] if label else None
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise InputError(f"An evaluation batch is a {type(batch).__name__}; expected a pair (x, y) or a dict with labels.")


def join(parts: Sequence[Any]) -> Any:
    """The samples of several batches as one batch."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    if isinstance(first, dict):
        return {key: join([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple | list):
        return tuple(join([part[index] for part in parts]) for index in range(len(first)))
    return torch.cat([torch.as_tensor(part) for part in parts])


def _length(x: Any) -> int:
    """The number of samples in a nested structure of arrays, which must all have the same number."""
    if isinstance(x, dict | tuple | list):
        lengths = {_length(part) for part in (x.values() if isinstance(x, dict) else x)}
        if len(lengths) != 1:
            raise InputError(f"The inputs of one batch hold {sorted(lengths)} samples; expected one number of them.")
        return lengths.pop()
    return len(x)
