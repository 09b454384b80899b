"""Take all measurements of one model: one frozen pass over each group of samples, and its replay in float64."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.measurements import GROUP, Array, Measurements
from walkback.measure.inputs import map_tensors
from walkback.measure.subject import Credit, FrozenPass, OwnSubject, Subject
from walkback.measure.vectors import clamped_cosines, cosines, haar_std, norms, rows, units
from walkback.nets.network import Leaves

Pool = Literal["auto", "cls", "mean", "all"]
FRESH_DRAWS = 20


@dataclass
class Group:
    """What is kept of one group's passes: pooled rows [n, features] for each layer, in float64."""

    seen: FrozenPass
    replay: FrozenPass | None
    credit: list[Tensor] | None
    credit64: list[Tensor] | None
    fresh: list[list[Tensor]] = field(default_factory=list)


def measure(
    subject: Subject,
    batches: Iterable[Any],
    *,
    credit: Credit | None = None,
    pool: Pool = "auto",
    labels: Sequence[str] | None = None,
    site: str | None = None,
) -> Measurements:
    """Measure a subject on evaluation batches, however they are cut: samples are regrouped into 128s.

    `credit` makes credits from a pass; without it a subject's own rule is used, and without that none is measured.
    """
    groups = regroup(batches)
    twin, why_not = _twin(subject)
    fresh = _fresh_states(twin) if credit is None else []
    taken = [_take(subject, twin, x, y, credit, fresh) for x, y in groups]
    chosen = _choose_pool(taken[0].seen, pool)
    arrays = _arrays(taken, chosen)
    full = sum(len(g.seen.losses) == GROUP for g in taken)
    facts = {
        "layers": len(taken[0].seen.states),
        "samples": sum(len(g.seen.losses) for g in taken),
        "groups": full,
        "dtype": str(subject.dtype).removeprefix("torch."),
        "pool": chosen,
        "site": site,
        "labels": list(labels) if labels is not None else None,
        "sample_hash": _hash(groups),
        "found": list(subject.found),
        "skipped": [*subject.skipped, *([f"float64 replay: {why_not}"] if why_not else [])],
    }
    return Measurements(arrays, facts)


def regroup(batches: Iterable[Any]) -> list[tuple[Any, Tensor | None]]:
    """All samples in order, cut into groups of 128; the rest is a smaller last group."""
    pairs = [_pair(batch) for batch in batches]
    if not pairs:
        raise InputError("No evaluation batches were given. Give at least 8 disjoint groups of 128 samples.")
    try:
        x = _join([x for x, _ in pairs])
        y = None if pairs[0][1] is None else torch.cat([torch.as_tensor(y) for _, y in pairs])
    except (RuntimeError, TypeError, KeyError) as error:
        raise InputError(f"The evaluation batches do not fit together: {error}. Give samples of one shape.") from error
    count = _length(x)
    if y is not None and len(y) != count:
        raise InputError(f"The evaluation batches hold {count} samples but {len(y)} labels.")
    starts = range(0, count, GROUP)
    return [(_cut(x, start), None if y is None else _cut(y, start)) for start in starts]


def _cut(value: Any, start: int) -> Any:
    return map_tensors(lambda leaf: leaf[start : start + GROUP], value)


def _pair(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, dict):
        label = next((key for key in ("labels", "label", "y") if key in batch), None)
        return {key: value for key, value in batch.items() if key != label}, batch[label] if label else None
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    raise InputError(f"An evaluation batch is a {type(batch).__name__}; expected a pair (x, y) or a dict with labels.")


def _join(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(list(parts))
    if isinstance(first, dict):
        return {key: _join([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple | list):
        return tuple(_join([part[index] for part in parts]) for index in range(len(first)))
    return torch.cat([torch.as_tensor(part) for part in parts])


def _leaves(x: Any) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    return [leaf for part in (x.values() if isinstance(x, dict) else x) for leaf in _leaves(part)]


def _length(x: Any) -> int:
    return len(_leaves(x)[0])


def _hash(groups: Sequence[tuple[Any, Tensor | None]]) -> str:
    state = hashlib.sha256()
    for x, y in groups:
        for leaf in [*_leaves(x), *([y] if y is not None else [])]:
            state.update(leaf.detach().cpu().contiguous().numpy().tobytes())
    return state.hexdigest()


def _twin(subject: Subject) -> tuple[Subject | None, str]:
    """The subject in float64, or the reason why there is none: what cannot be measured is said, not skipped."""
    try:
        return subject.double(), ""
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return None, f"the model cannot be copied to float64 ({str(error).splitlines()[0]})"


def _fresh_states(twin: Subject | None) -> list[Leaves]:
    """The rule's feedback drawn anew, 20 times; none where it has no feedback or there is no rule."""
    if not isinstance(twin, OwnSubject):
        return []
    drawn = (twin.fresh_state(draw) for draw in range(FRESH_DRAWS))
    return [state for state in drawn if state is not None]


def _take(
    subject: Subject, twin: Subject | None, x: Any, y: Tensor | None, credit: Credit | None, fresh: Sequence[Leaves]
) -> Group:
    seen = subject.run(x, y)
    replay = twin.run(x, y) if twin else None

    def credits_of(who: Subject, what: FrozenPass) -> list[Tensor] | None:
        made = credit(what) if credit else who.credit(what)
        return None if made is None else _checked(made, what)

    group = Group(seen, replay, credits_of(subject, seen), credits_of(twin, replay) if twin and replay else None)
    if isinstance(twin, OwnSubject) and replay:
        group.fresh.extend(list(twin.credit_with(replay, state)) for state in fresh)
    return group


def _checked(credits: Sequence[Tensor], seen: FrozenPass) -> list[Tensor]:
    got = [tuple(credit.shape) for credit in credits]
    expected = [tuple(state.shape) for state in seen.states]
    if got != expected:
        raise InputError(f"The credit has shapes {got}; expected one for each hidden state: {expected}.")
    return [credit.detach() for credit in credits]


def _choose_pool(seen: FrozenPass, pool: Pool) -> str:
    if all(state.ndim != 3 for state in seen.states):
        return "all"
    if pool != "auto":
        return pool
    return "cls" if not seen.reference[-1][:, 1:].any() else "all"


def _pooled(values: Tensor, pool: str) -> Tensor:
    """Rows [n, features] of one layer: token states pooled, other states flattened."""
    if values.ndim == 3 and pool == "cls":
        values = values[:, 0]
    elif values.ndim == 3 and pool == "mean":
        values = values.mean(1)
    return rows(values)


def _arrays(groups: Sequence[Group], pool: str) -> dict[str, Array]:
    found: dict[str, Array] = {}
    layers = range(len(groups[0].seen.states))

    def per_sample(name: str, numbers: Callable[[Group, int], Tensor]) -> None:
        stacked = [torch.cat([numbers(group, layer).double().cpu() for group in groups]) for layer in layers]
        found[name] = torch.stack(stacked).numpy()

    def pooled(values: Sequence[Tensor] | None, layer: int) -> Tensor:
        assert values is not None
        return _pooled(values[layer], pool)

    def reference(group: Group, layer: int) -> Tensor:
        """The float64 gradient where there is one, else the model's own."""
        return pooled((group.replay or group.seen).reference, layer)

    def credit(group: Group, layer: int) -> Tensor:
        return pooled(group.credit64 or group.credit, layer)

    per_sample("hidden_norm", lambda group, layer: norms(pooled(group.seen.states, layer)))
    per_sample("grad_norm", lambda group, layer: norms(pooled(group.seen.reference, layer)))
    if groups[0].replay:
        per_sample("grad_norm64", lambda group, layer: norms(reference(group, layer)))
        per_sample(
            "grad_cos64", lambda group, layer: cosines(pooled(group.seen.reference, layer), reference(group, layer))
        )
        per_sample(
            "grad_rel_error",
            lambda group, layer: (
                norms(pooled(group.seen.reference, layer) - reference(group, layer)) / norms(reference(group, layer))
            ),
        )
    found |= _group_cosines(groups, pool)
    found["loss"] = torch.cat([group.seen.losses.double().cpu() for group in groups]).numpy()
    if groups[0].seen.logits is not None:
        found["correct"] = torch.cat([_right(group.seen) for group in groups]).numpy()
        found["error_norm"] = torch.cat([norms(rows(_error(group.seen))).cpu() for group in groups]).numpy()
    if groups[0].credit is not None:
        per_sample("credit_norm", lambda group, layer: norms(credit(group, layer)))
        per_sample("credit_cos", lambda group, layer: cosines(credit(group, layer), reference(group, layer)))
        per_sample("credit_dot", lambda group, layer: (credit(group, layer) * reference(group, layer)).sum(-1))
        per_sample(
            "credit_cos_clamped",
            lambda group, layer: clamped_cosines(
                pooled(group.credit, layer), pooled(group.seen.reference, layer), GROUP
            ),
        )
        if groups[0].credit64:
            per_sample("credit_cos64", lambda group, layer: cosines(pooled(group.credit, layer), credit(group, layer)))
        found |= _credit_summaries(groups, layers, credit, reference)
        if groups[0].fresh:
            found["null_fresh"] = _fresh(groups, layers, reference, pool)
    return found


def _credit_summaries(
    groups: Sequence[Group],
    layers: range,
    credit: Callable[[Group, int], Tensor],
    reference: Callable[[Group, int], Tensor],
) -> dict[str, Array]:
    means, widths = [], []
    for layer in layers:
        full = [group for group in groups if len(group.seen.losses) == GROUP]
        pairs = [(credit(group, layer).mean(0), reference(group, layer).mean(0)) for group in full]
        means.append([float(cosines(a[None], g[None])) for a, g in pairs])
        a = torch.cat([credit(group, layer) for group in groups])
        g = torch.cat([reference(group, layer) for group in groups])
        widths.append(haar_std(a, g))
    return {
        "credit_group_cos": np.array(means, dtype=np.float64).reshape(len(layers), -1),
        "null_haar_std": np.array(widths, dtype=np.float64),
    }


def _fresh(groups: Sequence[Group], layers: range, reference: Callable[[Group, int], Tensor], pool: str) -> Array:
    """Mean cosine of each layer under each fresh draw of the feedback."""
    table = np.empty((len(layers), len(groups[0].fresh)))
    for layer in layers:
        for draw in range(table.shape[1]):
            cosine = torch.cat([cosines(_pooled(g.fresh[draw][layer], pool), reference(g, layer)) for g in groups])
            table[layer, draw] = float(cosine.nanmean())
    return table


def _group_cosines(groups: Sequence[Group], pool: str) -> dict[str, Array]:
    """How alike the mean gradients at h_L of disjoint groups are: near 1 means that they all point one way."""
    full = [group for group in groups if len(group.seen.losses) == GROUP]
    if len(full) < 2:
        return {}
    means = torch.stack([_pooled((g.replay or g.seen).reference[-1], pool).mean(0) for g in full])
    table = units(means) @ units(means).T
    upper = torch.triu_indices(len(full), len(full), offset=1)
    return {"group_cos": table[upper[0], upper[1]].cpu().numpy()}


def _right(seen: FrozenPass) -> Tensor:
    assert seen.logits is not None
    assert seen.y is not None
    return torch.eq(seen.logits.argmax(-1), seen.y).double().cpu()


def _error(seen: FrozenPass) -> Tensor:
    assert seen.error is not None
    return seen.error
