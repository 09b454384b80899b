"""The measurements of one model: named float64 arrays with known axes, and a dictionary of facts.

Nothing else is stored. Flags, verdicts, tables and figures are computed from them, so thresholds can be changed and
pages rewritten without the model.

Axes: `layer` runs over the hidden states h_0..h_L, `sample` over the evaluation samples in the given order,
`test sample` over a stored run's whole test set, `group` over disjoint groups of 128 samples, `pair` over pairs of
groups, `draw` over random draws, `block` over the blocks, `leaf` over the parameters that the facts name as `leaves`,
`updated` over those that they name as `updated`, `checked` over the samples of the reference check.

A sample that cannot be measured (zero or not finite) is NaN in cosines: it is excluded and counted, never imputed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkback.core.content_hash import SHA256, arrays_hash
from walkback.core.errors import InputError
from walkback.core.files import write_atomic
from walkback.core.reading.array_files import read_npz
from walkback.core.reading.json_text import parse_json, require_object
from walkback.core.reading.regular_files import Fault, fault_of
from walkback.core.reading.schema import Schema, check_schema

GROUP = 128
"""Samples in a group, and the batch whose mean loss gradients are quoted for (@128)."""

DERIVATIVE = "the derivative of the forward pass"
"""The fact `reference` where nothing else was given."""
RULE_CREDIT = "the rule's"
"""The fact `credit` of walkback's own rules."""
FIRST_EDITION = "first_edition"
"""The fact that measurements are to be read as a card of format 1 reads them."""
NULL_GROUPS = "null_update_groups"
"""The number of groups that the draws of the null of `update_cos` are a mean over, the first ones."""
NULL_OVER_GROUPS = "null_update_over_groups"
"""The fact of version 0.12 that they are a mean over all groups; with neither, they are those of the first group."""

Array = NDArray[np.float64]

AXES: dict[str, tuple[str, ...]] = {
    # L2 norm of each sample's (pooled) hidden state.
    "hidden_norm": ("layer", "sample"),
    # The same over all tokens, for networks whose head reads the cls token only: at h_0 cls is equal for all samples.
    "hidden_norm_all": ("layer", "sample"),
    # Norm of h_l+1 - h_l, the block's residual branch; absent where states differ in shape.
    "branch_norm": ("block", "sample"),
    # For each parameter of a stored run: norm before training, norm now, and norm of the difference.
    "weight_first": ("leaf",),
    "weight_last": ("leaf",),
    "weight_moved": ("leaf",),
    # Norm of the gradient of the sample's own loss (sum scale), in the model's own precision.
    "grad_norm": ("layer", "sample"),
    # The same from the float64 replay of the same weights and samples.
    "grad_norm64": ("layer", "sample"),
    # cos(g, g64) and |g - g64| / |g64|.
    "grad_cos64": ("layer", "sample"),
    "grad_rel_error": ("layer", "sample"),
    # Pairwise cosines of the normalised group-mean gradients at h_L.
    "group_cos": ("pair",),
    "loss": ("sample",),
    # 1 where the prediction is right, 0 where it is wrong.
    "correct": ("sample",),
    # The same over the whole test set of a stored run.
    "test_correct": ("test sample",),
    # The loss of each test window of tokens, in nats a token.
    "test_loss": ("test sample",),
    # |softmax - target|.
    "error_norm": ("sample",),
    # Only where a credit was measured: norm, cosine with g64, inner product with g64, all per sample (sum scale).
    "credit_norm": ("layer", "sample"),
    "credit_cos": ("layer", "sample"),
    "credit_dot": ("layer", "sample"),
    # cos of the credit in the model's own precision with its float64 replay.
    "credit_cos64": ("layer", "sample"),
    # Plain F.cosine_similarity on the mean-loss scale of 128 samples, with its clamp at 1e-8.
    "credit_cos_clamped": ("layer", "sample"),
    # Cosine of the group-mean credit with the group-mean gradient.
    "credit_group_cos": ("layer", "group"),
    # Standard deviation of the mean cosine under one Haar-random rotation of the layer's credit (exact).
    "null_haar_std": ("layer",),
    # Mean cosine of each layer under freshly drawn feedback, for rules that have feedback.
    "null_fresh": ("layer", "draw"),
    # Cosine of the credit that trains a block with the gradient where the block's output lands, h_l+1; over all tokens.
    "used_cos": ("block", "sample"),
    # Norm of that credit over the norm of that gradient.
    "credit_ratio": ("block", "sample"),
    # Nulls of the mean of used_cos: as null_haar_std and null_fresh.
    "null_used_std": ("block",),
    "null_used_fresh": ("block", "draw"),
    # Mean over tokens of the cosines of each token's credit and gradient.
    "token_cos": ("layer", "sample"),
    # Cosine of credit and gradient without their components along the gradient at h_L, which the skip path carries to
    # every layer; and the standard deviation of its mean under random rotations.
    "partial_cos": ("layer", "sample"),
    "null_partial_std": ("layer",),
    # Cosine of a block's parameter gradient as the method computes it with that of the mean loss, for each group of 128
    # samples: without and with the penalty; of the stem; of each parameter (named by the fact `updated`).
    "update_cos": ("block", "group"),
    "update_cos_full": ("block", "group"),
    "update_cos_stem": ("group",),
    "update_cos_leaf": ("updated", "group"),
    # Nulls of the mean of update_cos over groups: under freshly drawn credits (over NULL_GROUPS groups), or the
    # standard deviation under random rotations of the credits. Versions before 0.13 drew rotations, too.
    "null_update": ("block", "draw"),
    "null_update_std": ("block",),
    # Check of the reference by finite differences: the error relative to |g|, what rounding alone explains of it, the
    # slope along the gradient, and the inner product that it should equal.
    "reference_error": ("layer", "checked"),
    "reference_floor": ("layer", "checked"),
    "reference_slope": ("layer", "checked"),
    "reference_inner": ("layer", "checked"),
    # 1 where the prediction is right with one block skipped, with one block reset to its initial parameters, with the
    # network cut off after h_l; and of a ridge classifier on h_l, of this network and of the untrained one.
    "lesion_skip": ("block", "sample"),
    "lesion_reset": ("block", "sample"),
    "lesion_cut": ("layer", "sample"),
    "probe_correct": ("layer", "sample"),
    "probe_initial": ("layer", "sample"),
    # Finite steps (`functional.npz`). Perturbation correlation: Pearson, over a sample's random directions v, of the
    # loss's central difference along v with <a, v>; over all samples and directions at once; by a one-sided difference.
    "rho": ("layer", "sample"),
    "rho_pooled": ("layer",),
    "rho_one_sided": ("layer", "sample"),
    # Controls of rho on the same differences: with the true gradient in place of a, and with a random vector.
    "rho_gradient": ("layer", "sample"),
    "rho_random": ("layer", "sample"),
    # Change of the sample's loss after a step against the credit, and against the gradient, of a fixed share of |h|.
    "nudge_credit": ("layer", "sample"),
    "nudge_gradient": ("layer", "sample"),
}


OF_THE_TEST_SET = frozenset(("test_correct", "test_loss"))
"""Arrays that files without other measurements have, too."""
_TEXTS = {"type": ["array", "null"], "items": {"type": "string"}}
_TEXT, _COUNT, _NUMBER = {"type": ["string", "null"]}, {"type": "integer", "minimum": 0}, {"type": ["number", "null"]}
_SWITCH, _COUNT_OR_NONE = {"type": ["boolean", "integer"]}, {"type": ["integer", "null"]}
_FACTS: Schema = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("layers", "samples", "groups", "features", "directions", NULL_GROUPS), _COUNT),
        **dict.fromkeys(("dtype", "pool", "site", "sample_hash", "reference", "credit", "measured_on"), _TEXT),
        **dict.fromkeys(("labels", "found", "skipped", "reference_problems", "updated", "leaves"), _TEXTS),
        **dict.fromkeys(("majority_share", "unigram_entropy", "step", "nudge"), _NUMBER),
        **dict.fromkeys((FIRST_EDITION, NULL_OVER_GROUPS), _SWITCH),
        **dict.fromkeys(("label_classes", "predicted_classes", "repeated_samples"), _COUNT_OR_NONE),
        "rounded_bits": {"type": "integer", "minimum": 1, "maximum": 64},
        "files": {"type": "object", "additionalProperties": {"type": "string"}},
        SHA256: {"type": "string"},
    },
}
STORED_TYPES = (np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.uint8))
"""Types of stored arrays: float64, or the smaller ones that hold the values exactly."""


SECOND_EDITION = frozenset(
    ("used_cos", "credit_ratio", "null_used_std", "null_used_fresh", "token_cos", "partial_cos", "null_partial_std",
     "update_cos", "update_cos_full", "update_cos_stem", "update_cos_leaf", "null_update", "null_update_std",
     "reference_error", "reference_floor", "reference_slope", "reference_inner", "lesion_skip", "lesion_reset",
     "lesion_cut", "probe_correct", "probe_initial")
)  # fmt: skip
"""Measurements that cards written before version 0.10 do not know."""


@dataclass(frozen=True)
class Measurements:
    """The measurements of one model: arrays by name (see `AXES`) and facts."""

    arrays: Mapping[str, Array]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """`layers`, `samples`, `groups`, `dtype`, `pool`, `site` (output, input or null), `labels` (for each layer: exact,
    asymptotic, fitted, signs or none; null without a credit), `sample_hash`, `found` and `skipped` (sentences);
    `rounded_bits` if the arrays were rounded; `reference` and `credit`: where they come from, in words;
    `reference_problems`: for each layer a sentence if its reference cannot be used, else an empty text."""

    def __post_init__(self) -> None:
        lengths: dict[str, tuple[int, str]] = {}
        for name, array in self.arrays.items():
            if name not in AXES:
                raise InputError(f"'{name}' is not a known measurement.")
            if array.ndim != len(AXES[name]) or array.dtype != np.float64:
                raise InputError(f"The measurement '{name}' has {array.ndim} axes; expected {AXES[name]} in float64.")
            for axis, length in zip(AXES[name], array.shape, strict=True):
                first = lengths.setdefault(axis, (length, name))
                if first[0] != length:
                    raise InputError(
                        f"The measurement '{name}' has {length} entries along the axis '{axis}', but '{first[1]}' has "
                        f"{first[0]}; expected equal numbers. Measure the run again."
                    )

    def get(self, name: str) -> Array | None:
        """The array called `name`, or None if it was not measured."""
        return self.arrays.get(name)

    @property
    def depth(self) -> int:
        """L: the number of blocks."""
        return int(self.facts["layers"]) - 1

    def rounded(self, bits: int) -> Measurements:
        """A copy with all arrays rounded to `bits` significant bits; the fact `rounded_bits` records it."""
        arrays = {name: round_to(array, bits) for name, array in self.arrays.items()}
        return Measurements(arrays, {**self.facts, "rounded_bits": min(bits, self.facts.get("rounded_bits", bits))})

    def equals(self, other: Measurements) -> bool:
        """Whether both have the same arrays (NaN equals NaN) and facts."""
        if self.facts != other.facts or self.arrays.keys() != other.arrays.keys():
            return False
        return all(np.array_equal(array, other.arrays[name], equal_nan=True) for name, array in self.arrays.items())

    def save(self, path: Path, narrow: bool = False) -> None:
        """Write `measurements.npz`: named arrays, and the facts with the file's content hash as JSON bytes; no pickle.

        The same measurements give the same bytes, since numpy writes no time stamp. With `narrow`, each array is stored
        in the smallest type that holds its values exactly; `load` converts back to float64.
        """
        buffer = io.BytesIO()
        arrays = {name: _smallest_exact_type(array) if narrow else array for name, array in self.arrays.items()}
        # As they are read: JSON turns tuples into lists.
        facts = parse_json(json.dumps(dict(self.facts)), fault_of(path, "Report this error."))
        document = json.dumps({**facts, SHA256: arrays_hash(arrays, facts)}).encode()
        np.savez_compressed(buffer, **arrays, facts=np.frombuffer(document, dtype=np.uint8))  # type: ignore[arg-type]
        write_atomic(path, buffer.getvalue())

    @staticmethod
    def load(path: Path) -> Measurements:
        """Read a file written by `save`. A file that is not as it was written is refused; files of 0.8.1 and older have
        no content hash."""
        fault = fault_of(path, "Measure the run again.")
        found = read_npz(path, lambda why: fault(f"is not a measurements file: it {why}"))
        if "facts" not in found:
            raise fault("is not a measurements file: it has no facts")
        facts = require_object(parse_json(found.pop("facts").tobytes(), fault), fault)
        check_schema(facts, _FACTS, fault)
        for name, array in found.items():
            if array.dtype not in STORED_TYPES:
                raise fault(f"is damaged: '{name}' has the type {array.dtype}; expected float64, float32 or uint8")
        if SHA256 in facts and facts[SHA256] != arrays_hash(found, facts):
            raise fault("is damaged: it is not the file that was written (its sha256 differs)")
        facts.pop(SHA256, None)
        _check_lengths(found, facts, fault)
        try:
            return Measurements({name: array.astype(np.float64, copy=False) for name, array in found.items()}, facts)
        except InputError as error:
            raise InputError(f"{path} is damaged: {error}") from error


def _check_lengths(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any], fault: Fault) -> None:
    """Refuse facts that do not fit the arrays they count."""
    if arrays.keys() - OF_THE_TEST_SET:
        check_schema(facts, {"required": ["layers", "samples", "groups"]}, fault)
    counted = {"layer": facts.get("layers"), "sample": facts.get("samples"), "leaf": _length(facts.get("leaves"))}
    for name, array in arrays.items():
        for axis, length in zip(AXES.get(name, ()), array.shape, strict=False):
            if counted.get(axis) not in (None, length):
                raise fault(f"is damaged: '{name}' has {length} entries along '{axis}', its facts have {counted[axis]}")


def _length(found: list[str] | None) -> int | None:
    return None if found is None else len(found)


def round_to(array: Array, bits: int) -> Array:
    """Round to `bits` significant bits; values that are not finite, or would become infinite, stay unchanged."""
    parts, powers = np.frexp(array)
    with np.errstate(over="ignore"):
        near: Array = np.ldexp(np.rint(np.ldexp(parts, bits)), powers - bits)
    return np.where(np.isfinite(near), near, array)


def _smallest_exact_type(array: Array) -> NDArray[Any]:
    if np.all((array == 0) | (array == 1)) and not np.signbit(array).any():
        return array.astype(np.uint8)
    with np.errstate(over="ignore", under="ignore"):
        single = array.astype(np.float32)
    return single if np.array_equal(single, array, equal_nan=True) else array
