"""Operations without a useful derivative between a hidden state and the loss.

Rounding, signs, comparisons and sampling have the derivative zero almost everywhere, so finite differences agree with
it; but it is not the gradient that anyone means. A straight-through estimator, for instance, hides one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from walkback.measure.tape import Operation, Tape

STEP_FUNCTIONS = frozenset(
    ("sign", "sgn", "round", "floor", "ceil", "trunc", "fix", "heaviside", "floor_divide", "bucketize", "searchsorted")
)
"""Operations on floating-point numbers that return floating-point numbers and jump."""
STEP_PREFIXES = ("fake_quantize", "_fake_quantize", "quantize_", "dequantize")
VALUE_FREE = frozenset(("fill", "zero", "isnan", "isinf", "isfinite", "sym_size", "random", "uniform", "exponential"))
"""Operations whose result does not depend on their input's values, or is the same for all finite ones."""
INDEX_MAKERS = frozenset(
    ("argmax", "argmin", "max", "min", "topk", "sort", "argsort", "median", "nanmedian", "mode", "kthvalue", "aminmax",
     "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d")
)  # fmt: skip
INDEXING = frozenset(("index", "gather", "index_select", "take", "take_along_dim", "embedding", "index_put", "scatter"))


def find_discontinuity(tape: Tape, start: int, end: int) -> str | None:
    """The name of an operation without a useful derivative through which `end` depends on `start`; None if none."""
    smooth, broken, indices, floats = {start}, dict[int, str](), dict[int, str](), tape.is_float
    for op in tape.operations:
        smooth_in = [number for number in op.inputs if number in smooth]
        broken_in = [number for number in op.inputs if number in broken]
        index_in = [number for number in op.inputs if number in indices]
        if not (smooth_in or broken_in or index_in) or _is_value_free(op):
            continue
        cause = next((broken[number] for number in broken_in), None)
        if index_in and not (_base_name(op) in INDEXING and op.inputs[0] in smooth):
            # An index may be moved about among whole numbers; any other use makes the result jump.
            if not smooth_in and all(not floats[n] for n in _tensors(op.outputs)):
                indices.update((number, indices[index_in[0]]) for number in _tensors(op.outputs))
                continue
            cause = cause or indices[index_in[0]]
        for number in _affected(tape, op):
            if cause is not None:
                broken[number] = cause
            elif _jumps(op):
                broken[number] = _base_name(op)
            elif floats[number]:
                smooth.add(number)
            else:
                (indices if _base_name(op) in INDEX_MAKERS else broken)[number] = _base_name(op)
    return broken.get(end)


def _base_name(op: Operation) -> str:
    """The name without the underscore that marks a change in place."""
    return op.name if op.name.startswith("_") else op.name.rstrip("_")


def _jumps(op: Operation) -> bool:
    name = _base_name(op)
    return name in STEP_FUNCTIONS or name.startswith(STEP_PREFIXES) or bool(op.drawn)


def _is_value_free(op: Operation) -> bool:
    name = _base_name(op)
    if name in VALUE_FREE or name.endswith("_like") or name.startswith("new_"):
        return True
    # A test for an infinite value, as attention masks use it, is the same for all finite values.
    return name in ("eq", "ne") and any(isinstance(a, float) and not math.isfinite(a) for a in op.arguments)


def _affected(tape: Tape, op: Operation) -> Iterable[int]:
    """The results of an operation; for one that changes a tensor in place, all tensors in the same memory."""
    numbers = _tensors(op.outputs)
    if not op.is_mutable:
        return numbers
    memory = {tape.memory[number] for number in [*numbers, *op.inputs[:1]]}
    return [number for number, where in tape.memory.items() if where in memory]


def _tensors(outputs: Iterable[int | None]) -> list[int]:
    return [number for number in outputs if number is not None]
