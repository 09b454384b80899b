"""Take all measurements of one model: one frozen pass over each group of samples, and its replay in float64."""

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
from walkback.measure.refuse import PROBE_SAMPLES, refuse_mixing
from walkback.measure.subject import CreditFunction, FrozenPass, OwnSubject, Subject
from walkback.measure.vectors import as_rows, clamped_cosines, cosines, haar_std, norms, units
from walkback.nets.network import Leaves

Pool = Literal["auto", "cls", "mean", "all"]
FRESH_DRAWS = 20


@dataclass
class GroupMeasurement:
    """What is kept of one group's passes."""

    seen: FrozenPass
    replay: FrozenPass | None
    credit: list[Tensor] | None
    credit64: list[Tensor] | None
    pool: str
    fresh: list[Tensor] | None = None
    """For each layer, cosines [draws, n] of freshly drawn credits with the gradient: the credits would fill memory."""


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
    """Measure a subject on groups of 128 evaluation samples, as `regroup` makes them of batches.

    `credit` makes credits from a pass; without it a subject's own rule is used, and without that none is measured.
    Without `replay` nothing is taken in float64, so that validity stays unmeasured: for looking often and cheaply.
    """
    refuse_mixing(subject, *groups[0])
    twin, why_not = _twin(subject, pick(groups[0], torch.arange(PROBE_SAMPLES))) if replay else (None, "not asked for")
    fresh = _fresh_states(twin) if credit is None else []
    taken: list[GroupMeasurement] = []
    for x, y in groups:
        taken.append(_take(subject, twin, x, y, credit, fresh, taken[0].pool if taken else pool))
    arrays = _arrays(taken)
    full = sum(len(g.seen.losses) == GROUP for g in taken)
    facts = {
        "layers": len(taken[0].seen.states),
        "samples": sum(len(g.seen.losses) for g in taken),
        "groups": full,
        "dtype": str(subject.dtype).removeprefix("torch."),
        "pool": taken[0].pool,
        "site": site,
        "labels": list(labels) if labels is not None else None,
        "sample_hash": groups.sample_hash,
        "found": list(subject.found),
        "skipped": [*subject.skipped, *([f"float64 replay: {why_not}"] if why_not else [])],
    }
    return Measurements(arrays, facts)


def _twin(subject: Subject, few: tuple[Any, Tensor | None]) -> tuple[Subject | None, str]:
    """The subject in float64, or the reason why there is none: what cannot be measured is said, not skipped.

    The subject itself has run on these few samples, so what fails here is the model's own dislike of float64.
    """
    try:
        twin = subject.double()
        twin.run(*few)
        return twin, ""
    except (RuntimeError, TypeError, NotImplementedError, InputError) as error:
        return None, f"the model cannot run in float64 ({str(error).splitlines()[0]})"


def _fresh_states(twin: Subject | None) -> list[Leaves]:
    """The rule's feedback drawn anew, 20 times; none where it has no feedback or there is no rule."""
    if not isinstance(twin, OwnSubject):
        return []
    drawn = (twin.fresh_state(draw) for draw in range(FRESH_DRAWS))
    return [state for state in drawn if state is not None]


def _take(
    subject: Subject,
    twin: Subject | None,
    x: Any,
    y: Tensor | None,
    credit: CreditFunction | None,
    fresh: Sequence[Leaves],
    pool: str,
) -> GroupMeasurement:
    seen = subject.run(x, y)
    replay = twin.run(x, y) if twin else None

    def credits_of(who: Subject, what: FrozenPass) -> list[Tensor] | None:
        made = credit(what) if credit else who.credit(what)
        return None if made is None else _checked(made, what)

    chosen = choose_pool(replay or seen, pool)
    made, again = credits_of(subject, seen), credits_of(twin, replay) if twin and replay else None
    group = GroupMeasurement(seen, replay, made, again, chosen)
    if isinstance(twin, OwnSubject) and replay and fresh:
        group.fresh = _fresh(replay, [twin.credit_with(replay, state) for state in fresh], chosen)
    return group


def _fresh(replay: FrozenPass, draws: Sequence[Sequence[Tensor]], pool: str) -> list[Tensor]:
    layers = enumerate(replay.reference)
    drawn = ((torch.stack([_pooled(credits[index], pool) for credits in draws]), g) for index, g in layers)
    return [cosines(credits, _pooled(g, pool)) for credits, g in drawn]


def _checked(credits: Sequence[Tensor], seen: FrozenPass) -> list[Tensor]:
    got = [tuple(credit.shape) for credit in credits]
    expected = [tuple(state.shape) for state in seen.states]
    if got != expected:
        raise InputError(f"The credit has shapes {got}; expected one for each hidden state: {expected}.")
    return [credit.detach() for credit in credits]


def choose_pool(seen: FrozenPass, pool: str) -> str:
    """What stands for a sample's state: its cls token where the head reads nothing else, its mean, or all of it."""
    if all(state.ndim != 3 for state in seen.states):
        return "all"
    if pool != "auto":
        return pool
    top = seen.reference[-1]
    # A gradient that vanished at every token tells nothing about what the head reads.
    return "cls" if top[:, 0].any() and not top[:, 1:].any() else "all"


def _pooled(values: Tensor, pool: str) -> Tensor:
    """Rows [n, features] of one layer: token states pooled, other states flattened."""
    if values.ndim == 3 and pool == "cls":
        values = values[:, 0]
    elif values.ndim == 3 and pool == "mean":
        values = values.mean(1)
    return as_rows(values)


def _arrays(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    by_layer = [_layer(groups, index) for index in range(len(groups[0].seen.states))]
    found: dict[str, Array] = {name: np.stack([numbers[name] for numbers in by_layer]) for name in by_layer[0]}
    found |= _branches(groups) | _group_cosines(groups)
    found["loss"] = _numbers(torch.cat([group.seen.losses for group in groups]))
    if groups[0].seen.logits is not None:
        found["correct"] = _numbers(torch.cat([_right(group.seen) for group in groups]))
        found["error_norm"] = _numbers(norms(as_rows(torch.cat([_error(group.seen) for group in groups]))))
    return found


def _layer(groups: Sequence[GroupMeasurement], index: int) -> dict[str, Array]:
    """The numbers of one layer, one per sample unless said otherwise; each tensor is pooled and widened once."""

    def joined(values: Callable[[GroupMeasurement], Sequence[Tensor] | None]) -> Tensor | None:
        parts = [values(group) for group in groups]
        return _pooled(torch.cat([p[index] for p in parts if p is not None]), groups[0].pool) if parts[0] else None

    hidden, own = joined(lambda group: group.seen.states), joined(lambda group: group.seen.reference)
    assert hidden is not None
    assert own is not None
    found = {"hidden_norm": norms(hidden), "grad_norm": norms(own)}
    broken = found["hidden_norm"].isnan()
    wide = joined(lambda group: group.replay.states if group.replay else None) if broken.any() else None
    if wide is not None:
        # Infinity less infinity: where float64 has a number, the model's own format was outgrown on the way.
        found["hidden_norm"] = torch.where(broken & norms(wide).isfinite(), torch.inf, found["hidden_norm"])
    if groups[0].pool == "cls":
        found["hidden_norm_all"] = norms(as_rows(torch.cat([group.seen.states[index] for group in groups])))
    # The float64 gradient where there is one, else the model's own.
    reference = joined(lambda group: group.replay.reference if group.replay else None)
    if reference is not None:
        found["grad_norm64"] = norms(reference)
        found["grad_cos64"] = cosines(own, reference)
        found["grad_rel_error"] = norms(own - reference) / found["grad_norm64"]
    else:
        reference = own
    given = joined(lambda group: group.credit)
    if given is not None:
        again = joined(lambda group: group.credit64)
        credit = given if again is None else again
        found["credit_norm"] = norms(credit)
        found["credit_cos"] = cosines(credit, reference)
        found["credit_dot"] = (credit * reference).sum(-1)
        found["credit_cos_clamped"] = clamped_cosines(given, own, GROUP)
        if again is not None:
            found["credit_cos64"] = cosines(given, again)
        full = len(own) // GROUP
        found["credit_group_cos"] = cosines(_group_means(credit, full), _group_means(reference, full))
        found["null_haar_std"] = haar_std(credit, reference)
    if groups[0].fresh is not None:
        # Mean cosine under each fresh draw of the feedback.
        found["null_fresh"] = torch.cat([g.fresh[index] for g in groups if g.fresh is not None], dim=1).nanmean(1)
    return {name: _numbers(values) for name, values in found.items()}


def _branches(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    """Norms of what each block adds to the stream, in float64 where there is a replay."""
    passes = [(group.replay or group.seen).states for group in groups]
    if len(passes[0]) < 2 or len({state.shape for state in passes[0]}) > 1:
        return {}
    whole = (torch.cat(layer).double() for layer in zip(*passes, strict=True))  # Two at a time are held.
    added = [norms(_pooled(after - before, groups[0].pool)) for before, after in pairwise(whole)]
    return {"branch_norm": _numbers(torch.stack(added))}


def _group_means(values: Tensor, full: int) -> Tensor:
    """Means over each full group of 128; only the last group may be smaller."""
    return values[: full * GROUP].reshape(full, GROUP, values.shape[1]).mean(1)


def _group_cosines(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    """How alike the mean gradients at h_L of disjoint groups are: near 1 means that they all point one way."""
    full = [group for group in groups if len(group.seen.losses) == GROUP]
    if len(full) < 2:
        return {}
    means = torch.stack([_pooled((g.replay or g.seen).reference[-1], g.pool).mean(0) for g in full])
    table = units(means) @ units(means).T
    upper = torch.triu_indices(len(full), len(full), offset=1)
    return {"group_cos": table[upper[0], upper[1]].cpu().numpy()}


def _right(seen: FrozenPass) -> Tensor:
    assert seen.logits is not None
    assert seen.y is not None
    return torch.eq(seen.logits.argmax(-1), seen.y)


def _error(seen: FrozenPass) -> Tensor:
    assert seen.error is not None
    return seen.error


def _numbers(values: Tensor) -> Array:
    found: Array = values.double().cpu().numpy()
    return found
