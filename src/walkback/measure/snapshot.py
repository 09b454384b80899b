"""Measure one model: one frozen pass over each group of samples, and its replay in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.measurements import GROUP, Array, Measurements
from walkback.measure.inputs import Groups, pick
from walkback.measure.preconditions import PROBE_SAMPLES, require_independent_samples
from walkback.measure.subject import CreditFunction, FrozenPass, NetworkSubject, Subject
from walkback.measure.vectors import as_rows, clamped_cosines, cosines, haar_std, norms, units
from walkback.nets.network import Leaves

Pool = Literal["auto", "cls", "mean", "all"]
FRESH_DRAWS = 20
"""How often the feedback is drawn anew for the null of fresh feedback."""


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


def measure(
    subject: Subject,
    groups: Groups,
    *,
    credit: CreditFunction | None = None,
    pool: Pool = "auto",
    labels: Sequence[str] | None = None,
    site: str | None = None,
    replay: bool = True,
) -> Measurements:
    """Measure a subject on groups of 128 evaluation samples, as returned by `regroup`.

    `credit` returns the credits of a pass; without it the subject's own rule is used, and without a rule no credit is
    measured. Without `replay` nothing runs in float64 and validity is not measured: for frequent, cheap measurements.
    """
    require_independent_samples(subject, *groups[0])
    subject64, why_not = None, "not asked for"
    if replay:
        subject64, why_not = _float64_subject(subject, pick(groups[0], torch.arange(PROBE_SAMPLES)))
    fresh = _fresh_states(subject64) if credit is None else []
    measured: list[GroupMeasurement] = []
    for x, y in groups:
        measured.append(_measure_group(subject, subject64, x, y, credit, fresh, measured[0].pool if measured else pool))
    arrays = _to_arrays(measured)
    full = sum(len(g.frozen_pass.losses) == GROUP for g in measured)
    facts = {
        "layers": len(measured[0].frozen_pass.states),
        "samples": sum(len(g.frozen_pass.losses) for g in measured),
        "groups": full,
        "dtype": str(subject.dtype).removeprefix("torch."),
        "pool": measured[0].pool,
        "site": site,
        "labels": list(labels) if labels is not None else None,
        "sample_hash": groups.sample_hash,
        "found": list(subject.found),
        "skipped": [*subject.skipped, *([f"float64 replay: {why_not}"] if why_not else [])],
    }
    return Measurements(arrays, facts)


def _float64_subject(subject: Subject, probe: tuple[Any, Tensor | None]) -> tuple[Subject | None, str]:
    """The subject in float64, or None and the reason why the model cannot run in float64.

    The subject has run on the `probe` samples before, so an error here is due to float64.
    """
    try:
        subject64 = subject.double()
        subject64.run(*probe)
        return subject64, ""
    except (RuntimeError, TypeError, NotImplementedError, InputError) as error:
        return None, f"the model cannot run in float64 ({str(error).splitlines()[0]})"


def _fresh_states(subject64: Subject | None) -> list[Leaves]:
    """The rule's feedback drawn anew, 20 times; empty if there is no rule or it has no feedback."""
    if not isinstance(subject64, NetworkSubject):
        return []
    drawn = (subject64.fresh_state(draw) for draw in range(FRESH_DRAWS))
    return [state for state in drawn if state is not None]


def _measure_group(
    subject: Subject,
    subject64: Subject | None,
    x: Any,
    y: Tensor | None,
    credit: CreditFunction | None,
    fresh: Sequence[Leaves],
    pool: str,
) -> GroupMeasurement:
    """Run one group through the model and its float64 copy, with the credits of both."""
    frozen_pass = subject.run(x, y)
    replay = subject64.run(x, y) if subject64 else None

    def credits_of(subject: Subject, frozen_pass: FrozenPass) -> list[Tensor] | None:
        credits = credit(frozen_pass) if credit else subject.credit(frozen_pass)
        return None if credits is None else _check_shapes(credits, frozen_pass)

    chosen = choose_pool(replay or frozen_pass, pool)
    credits = credits_of(subject, frozen_pass)
    credits64 = credits_of(subject64, replay) if subject64 and replay else None
    group = GroupMeasurement(frozen_pass, replay, credits, credits64, chosen)
    if isinstance(subject64, NetworkSubject) and replay and fresh:
        group.fresh = _fresh_cosines(replay, [subject64.credit_with(replay, state) for state in fresh], chosen)
    return group


def _fresh_cosines(replay: FrozenPass, draws: Sequence[Sequence[Tensor]], pool: str) -> list[Tensor]:
    layers = enumerate(replay.reference)
    drawn = ((torch.stack([_pooled(credits[index], pool) for credits in draws]), g) for index, g in layers)
    return [cosines(credits, _pooled(g, pool)) for credits, g in drawn]


def _check_shapes(credits: Sequence[Tensor], frozen_pass: FrozenPass) -> list[Tensor]:
    """The credits, detached; refuses credits whose shapes are not those of the hidden states."""
    got = [tuple(credit.shape) for credit in credits]
    expected = [tuple(state.shape) for state in frozen_pass.states]
    if got != expected:
        raise InputError(f"The credit has shapes {got}; expected one for each hidden state: {expected}.")
    return [credit.detach() for credit in credits]


def choose_pool(frozen_pass: FrozenPass, pool: str) -> str:
    """Which part of a token state is measured: the cls token if the head reads nothing else, the mean, or all of it."""
    if all(state.ndim != 3 for state in frozen_pass.states):
        return "all"
    if pool != "auto":
        return pool
    top = frozen_pass.reference[-1]
    # A gradient that vanished at every token does not show what the head reads.
    return "cls" if top[:, 0].any() and not top[:, 1:].any() else "all"


def _pooled(values: Tensor, pool: str) -> Tensor:
    """Rows [n, features] of one layer: token states pooled, other states flattened."""
    if values.ndim == 3 and pool == "cls":
        values = values[:, 0]
    elif values.ndim == 3 and pool == "mean":
        values = values.mean(1)
    return as_rows(values)


def _to_arrays(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    by_layer = [_layer_arrays(groups, index) for index in range(len(groups[0].frozen_pass.states))]
    found: dict[str, Array] = {name: np.stack([numbers[name] for numbers in by_layer]) for name in by_layer[0]}
    found |= _branch_norms(groups) | _group_cosines(groups)
    found["loss"] = _to_array(torch.cat([group.frozen_pass.losses for group in groups]))
    if groups[0].frozen_pass.logits is not None:
        found["correct"] = _to_array(torch.cat([_is_correct(group.frozen_pass) for group in groups]))
        found["error_norm"] = _to_array(norms(as_rows(torch.cat([_error(group.frozen_pass) for group in groups]))))
    return found


def _layer_arrays(groups: Sequence[GroupMeasurement], index: int) -> dict[str, Array]:
    """The arrays of one layer, one value per sample unless noted; each tensor is pooled and converted only once."""

    def joined(values: Callable[[GroupMeasurement], Sequence[Tensor] | None]) -> Tensor | None:
        parts = [values(group) for group in groups]
        return _pooled(torch.cat([p[index] for p in parts if p is not None]), groups[0].pool) if parts[0] else None

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
        found["null_haar_std"] = haar_std(credit, reference)
    if groups[0].fresh is not None:
        # Mean cosine under each fresh draw of the feedback.
        found["null_fresh"] = torch.cat([g.fresh[index] for g in groups if g.fresh is not None], dim=1).nanmean(1)
    return {name: _to_array(values) for name, values in found.items()}


def _branch_norms(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    """Norms of what each block adds to the residual stream, in float64 if there is a replay."""
    passes = [(group.replay or group.frozen_pass).states for group in groups]
    if len(passes[0]) < 2 or len({state.shape for state in passes[0]}) > 1:
        return {}
    whole = (torch.cat(layer).double() for layer in zip(*passes, strict=True))  # Only two are in memory at a time.
    added = [norms(_pooled(after - before, groups[0].pool)) for before, after in pairwise(whole)]
    return {"branch_norm": _to_array(torch.stack(added))}


def _group_means(values: Tensor, full: int) -> Tensor:
    """Means over each full group of 128; only the last group may be smaller."""
    return values[: full * GROUP].reshape(full, GROUP, values.shape[1]).mean(1)


def _group_cosines(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    """Pairwise cosines of the mean gradients at h_L of disjoint groups; near 1 they all have one direction."""
    full = [group for group in groups if len(group.frozen_pass.losses) == GROUP]
    if len(full) < 2:
        return {}
    means = torch.stack([_pooled((g.replay or g.frozen_pass).reference[-1], g.pool).mean(0) for g in full])
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
