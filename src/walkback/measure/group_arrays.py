"""From the passes of all groups to the stored arrays: norms, cosines and their nulls, per layer, block and group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from walkback.core.measurements import GROUP, Array
from walkback.measure.subject import FrozenPass
from walkback.measure.updates import UpdateNull, null_std
from walkback.measure.vectors import (
    NullSpace,
    as_rows,
    clamped_cosines,
    cosines,
    haar_std,
    norms,
    token_cosines,
    units,
    without,
)

_ROUNDING = 1e-9
"""Share of a vector that is taken for rounding error."""


@dataclass
class GroupMeasurement:
    """The passes and credits of one group of samples."""

    frozen_pass: FrozenPass
    replay: FrozenPass | None
    credit: list[Tensor] | None
    credit64: list[Tensor] | None
    pool: str
    fresh: list[Tensor] | None = None
    """For each layer, cosines [draws, n] of freshly drawn credits with the gradient; storing the credits would need
    too much memory."""
    fresh_used: list[Tensor] | None = None
    """The same for each block, of the credit that trains it."""
    updates: dict[str, Tensor] = field(default_factory=dict)
    """Cosines of parameter gradients."""
    update_nulls: list[UpdateNull] = field(default_factory=list)
    """For each block, the group's part in the null of these cosines."""
    fresh_updates: list[Tensor] = field(default_factory=list)
    """For each block, these cosines under each fresh draw of the feedback; empty in later groups."""

    @property
    def exact_pass(self) -> FrozenPass:
        """The float64 replay if there is one, else the model's own pass."""
        return self.replay or self.frozen_pass

    @property
    def exact_credit(self) -> list[Tensor] | None:
        return self.credit if self.credit64 is None else self.credit64


def used_credit(credits: Sequence[Tensor], block: int, site: str | None) -> Tensor:
    """The credit that trains a block: that of its input under site=input, else that of its output."""
    return credits[block] if site == "input" else credits[block + 1]


def choose_pool(frozen_pass: FrozenPass, pool: str) -> str:
    """Which part of a token state is measured: the cls token if the head reads nothing else, the mean, or all of it."""
    if all(state.ndim != 3 for state in frozen_pass.states):
        return "all"
    if pool != "auto":
        return pool
    top = frozen_pass.reference[-1]
    # A gradient that vanished at every token does not show what the head reads.
    return "cls" if top[:, 0].any() and not top[:, 1:].any() else "all"


def pooled(values: Tensor, pool: str) -> Tensor:
    """Rows [n, features] of one layer: token states pooled, other states flattened."""
    if values.ndim == 3 and pool == "cls":
        values = values[:, 0]
    elif values.ndim == 3 and pool == "mean":
        values = values.mean(1)
    return as_rows(values)


def to_arrays(groups: Sequence[GroupMeasurement], site: str | None, space: NullSpace) -> dict[str, Array]:
    by_layer = [_layer_arrays(groups, index, space) for index in range(len(groups[0].frozen_pass.states))]
    names = set.intersection(*(set(numbers) for numbers in by_layer))
    found: dict[str, Array] = {n: np.stack([numbers[n] for numbers in by_layer]) for n in by_layer[0] if n in names}
    found |= (
        _branch_norms(groups)
        | _group_cosines(groups)
        | _used_arrays(groups, site, space)
        | _update_arrays(groups, site, space)
    )
    found["loss"] = _to_array(torch.cat([group.frozen_pass.losses for group in groups]))
    if groups[0].frozen_pass.is_classified:
        found["correct"] = _to_array(torch.cat([_is_correct(group.frozen_pass) for group in groups]))
    if groups[0].frozen_pass.error is not None:
        found["error_norm"] = _to_array(norms(as_rows(torch.cat([_error(group.frozen_pass) for group in groups]))))
    return found


def _used_arrays(groups: Sequence[GroupMeasurement], site: str | None, space: NullSpace) -> dict[str, Array]:
    """Alignment of the credit that trains each block with the gradient at the block's output, over all tokens."""
    if groups[0].exact_credit is None:
        return {}
    found: dict[str, list[Tensor]] = {}
    for block in range(len(groups[0].frozen_pass.states) - 1):
        parts = [(group.exact_credit or [], group.exact_pass.reference[block + 1]) for group in groups]
        credit = torch.cat([used_credit(credits, block, site) for credits, _ in parts])
        gradient = torch.cat([reference for _, reference in parts])
        if credit.shape != gradient.shape:
            return {}
        rows = as_rows(credit), as_rows(gradient)
        found.setdefault("used_cos", []).append(cosines(*rows))
        found.setdefault("credit_ratio", []).append(norms(rows[0]) / norms(rows[1]))
        found.setdefault("null_used_std", []).append(haar_std(credit, gradient, space))
        fresh = [group.fresh_used[block] for group in groups if group.fresh_used is not None]
        if fresh:
            found.setdefault("null_used_fresh", []).append(torch.cat(fresh, dim=1).nanmean(1))
    return {name: _to_array(torch.stack(parts)) for name, parts in found.items()}


def _update_arrays(groups: Sequence[GroupMeasurement], site: str | None, space: NullSpace) -> dict[str, Array]:
    full = [group for group in groups if group.updates]
    if not full:
        return {}
    found = {name: torch.stack([group.updates[name] for group in full], dim=-1) for name in full[0].updates}
    if drawn := [torch.stack(group.fresh_updates) for group in full if group.fresh_updates]:
        found["null_update"] = torch.stack(drawn).nanmean(0)
    elif full[0].update_nulls:
        by_block = list(zip(*(group.update_nulls for group in full), strict=True))
        credits = [[used_credit(g.exact_credit or [], block, site) for g in full] for block in range(len(by_block))]
        widths = [null_std(nulls, own, space) for nulls, own in zip(by_block, credits, strict=True)]
        found["null_update_std"] = torch.stack(widths)
    return {name: _to_array(values) for name, values in found.items()}


def _layer_arrays(groups: Sequence[GroupMeasurement], index: int, space: NullSpace) -> dict[str, Array]:
    """The arrays of one layer, one value per sample unless noted; each tensor is pooled and converted only once."""

    def joined(values: Callable[[GroupMeasurement], Sequence[Tensor] | None]) -> Tensor | None:
        parts = [values(group) for group in groups]
        return pooled(torch.cat([p[index] for p in parts if p is not None]), groups[0].pool) if parts[0] else None

    hidden, own = joined(lambda group: group.frozen_pass.states), joined(lambda group: group.frozen_pass.reference)
    assert hidden is not None
    assert own is not None
    found = {"hidden_norm": norms(hidden), "grad_norm": norms(own)}
    broken = found["hidden_norm"].isnan()
    hidden64 = joined(lambda group: group.replay.states if group.replay else None) if broken.any() else None
    if hidden64 is not None:
        # Infinity minus infinity: if float64 has a finite norm, the model's own format overflowed on the way.
        found["hidden_norm"] = torch.where(broken & norms(hidden64).isfinite(), torch.inf, found["hidden_norm"])
    if groups[0].pool == "cls":
        found["hidden_norm_all"] = norms(as_rows(torch.cat([group.frozen_pass.states[index] for group in groups])))
    # The float64 gradient if there is a replay, else the model's own.
    reference = joined(lambda group: group.replay.reference if group.replay else None)
    if reference is not None:
        found["grad_norm64"] = norms(reference)
        found["grad_cos64"] = cosines(own, reference)
        found["grad_rel_error"] = norms(own - reference) / found["grad_norm64"]
    else:
        reference = own
    given = joined(lambda group: group.credit)
    if given is not None:
        credits64 = joined(lambda group: group.credit64)
        credit = given if credits64 is None else credits64
        found["credit_norm"] = norms(credit)
        found["credit_cos"] = cosines(credit, reference)
        found["credit_dot"] = (credit * reference).sum(-1)
        found["credit_cos_clamped"] = clamped_cosines(given, own, GROUP)
        if credits64 is not None:
            found["credit_cos64"] = cosines(given, credits64)
        full = len(own) // GROUP
        found["credit_group_cos"] = cosines(_group_means(credit, full), _group_means(reference, full))
        pool = groups[0].pool
        whole_a = torch.cat([(group.exact_credit or [])[index] for group in groups])
        whole_g = torch.cat([group.exact_pass.reference[index] for group in groups])
        # A pooled token state is a vector; any other state is rotated as its shape says.
        rotated_pair = (whole_a, whole_g) if pool == "all" else (credit, reference)
        found["null_haar_std"] = haar_std(*rotated_pair, space=space)
        if whole_a.ndim == 3:
            found["token_cos"] = token_cosines(whole_a, whole_g)
        tops = torch.cat([group.exact_pass.reference[-1] for group in groups])
        if tops.shape == whole_a.shape:
            found |= _partial(whole_a, whole_g, tops, space)
    if groups[0].fresh is not None:
        # Mean cosine under each fresh draw of the feedback.
        found["null_fresh"] = torch.cat([g.fresh[index] for g in groups if g.fresh is not None], dim=1).nanmean(1)
    return {name: _to_array(values) for name, values in found.items()}


def _partial(credit: Tensor, reference: Tensor, top: Tensor, space: NullSpace) -> dict[str, Tensor]:
    """Alignment that is left without the gradient at h_L, which the skip path carries to every layer."""
    direction = as_rows(top)
    left_a, left_g = (without(as_rows(values), direction) for values in (credit, reference))
    for left, whole in ((left_a, credit), (left_g, reference)):
        # Nothing but rounding is left of the reference at h_L, or of a credit that is the gradient at h_L.
        left[norms(left) <= _ROUNDING * norms(as_rows(whole))] = torch.nan
    shape = reference.shape
    return {
        "partial_cos": cosines(left_a, left_g),
        "null_partial_std": haar_std(left_a.reshape(shape), left_g.reshape(shape), space),
    }


def _branch_norms(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    """Norms of what each block adds to the residual stream, in float64 if there is a replay."""
    passes = [group.exact_pass.states for group in groups]
    if len(passes[0]) < 2 or len({state.shape for state in passes[0]}) > 1:
        return {}
    whole = (torch.cat(layer).double() for layer in zip(*passes, strict=True))  # Only two are in memory at a time.
    added = [norms(pooled(after - before, groups[0].pool)) for before, after in pairwise(whole)]
    return {"branch_norm": _to_array(torch.stack(added))}


def _group_means(values: Tensor, full: int) -> Tensor:
    """Means over each full group of 128; only the last group may be smaller."""
    return values[: full * GROUP].reshape(full, GROUP, values.shape[1]).mean(1)


def _group_cosines(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    """Pairwise cosines of the mean gradients at h_L of disjoint groups; near 1 they all have one direction."""
    full = [group for group in groups if len(group.frozen_pass.losses) == GROUP]
    if len(full) < 2:
        return {}
    means = torch.stack([pooled(g.exact_pass.reference[-1], g.pool).mean(0) for g in full])
    table = units(means) @ units(means).T
    upper = torch.triu_indices(len(full), len(full), offset=1)
    return {"group_cos": table[upper[0], upper[1]].cpu().numpy()}


def _is_correct(frozen_pass: FrozenPass) -> Tensor:
    assert frozen_pass.logits is not None
    assert frozen_pass.y is not None
    return torch.eq(frozen_pass.logits.argmax(-1), frozen_pass.y)


def _error(frozen_pass: FrozenPass) -> Tensor:
    assert frozen_pass.error is not None
    return frozen_pass.error


def _to_array(values: Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found
