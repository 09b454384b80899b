"""Measure one model: one frozen pass over each group of samples, and its replay in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.measurements import DERIVATIVE, GROUP, RULE_CREDIT, Array, Measurements
from walkback.core.random_streams import generator
from walkback.measure.inputs import Groups, join, pick
from walkback.measure.lesions import measure_lesions
from walkback.measure.module_subject import ModuleSubject, UpdateFunction
from walkback.measure.preconditions import PROBE_SAMPLES, require_independent_samples
from walkback.measure.probes import measure_probes
from walkback.measure.reference_check import CHECKED_SAMPLES, COPIES, check_reference
from walkback.measure.subject import CreditFunction, FrozenPass, NetworkSubject, Subject
from walkback.measure.updates import null_cosines, rotated, update_cosines
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

Pool = Literal["auto", "cls", "mean", "all"]
CreditSource = CreditFunction | Literal["auto", "backward"] | None
FreshCredit = Callable[[torch.Generator], CreditFunction]
"""Draws the feedback of a user's method anew, and returns the credit function that uses it."""
FRESH_DRAWS = 20
"""How often the feedback is drawn anew for the null of fresh feedback."""
SAME_GRADIENT = {torch.float64: 1e-6}
"""Relative difference above which the model's own backward pass is not the derivative; in other formats 1e-2."""
_ROUNDING = 1e-9
"""Share of a vector that is taken for rounding error."""
GIVEN_REFERENCE = "given by reference="
RULE, GIVEN, BACKWARD = RULE_CREDIT, "given by credit=", "the model's own backward"


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

    @property
    def exact_pass(self) -> FrozenPass:
        """The float64 replay if there is one, else the model's own pass."""
        return self.replay or self.frozen_pass

    @property
    def exact_credit(self) -> list[Tensor] | None:
        return self.credit if self.credit64 is None else self.credit64


@dataclass(frozen=True)
class MeasureOptions:
    """What is measured besides the states and their reference gradients."""

    credit: CreditSource = "auto"
    """Returns the credits of a pass. `auto`: those of the subject's own rule, or of the model's own backward pass where
    it differs from the derivative; `backward`: those of the model's own backward pass in any case; None: no credit."""
    reference: CreditFunction | None = None
    """Returns the reference gradients of a pass, in place of the derivative of the forward pass."""
    fresh: FreshCredit | None = None
    update: UpdateFunction | None = None
    """Leaves the parameter gradients of a user's training step in `.grad`, or returns them by name."""
    null_space: NullSpace | None = None
    """What a random rotation of the credit mixes; None: what the rule's feedback mixes, or the features."""
    initial: Mapping[str, Tensor] | None = None
    """The parameters before training, by name: blocks are reset to them, and probes compared with them."""
    check: bool = True
    """Whether the reference is checked by finite differences."""
    updates: bool = True
    """Whether parameter gradients are measured."""
    lesions: bool = True
    """Whether blocks are skipped, reset and cut off."""
    train: tuple[Any, Tensor] | None = None
    """Training samples that probes are fitted on."""
    pool: Pool = "auto"
    labels: Sequence[str] | None = None
    """How each layer's credit relates to the gradient by construction: exact, asymptotic, fitted, signs or none."""
    exact: tuple[int, ...] = ()
    """Layers whose credit is the gradient by construction, where `labels` are not given."""
    site: str | None = None
    replay: bool = True
    """Without it nothing runs in float64 and validity is not measured: for frequent, cheap measurements."""


def measure(subject: Subject, groups: Groups, options: MeasureOptions | None = None) -> Measurements:
    """Measure a subject on groups of 128 evaluation samples, as returned by `regroup`."""
    options = options or MeasureOptions()
    require_independent_samples(subject, *groups[0])
    subject64, why_not = None, "not asked for"
    if options.replay:
        subject64, why_not = _float64_subject(subject, pick(groups[0], torch.arange(PROBE_SAMPLES)))
    measurer = _GroupMeasurer(subject, subject64, groups, options)
    measured: list[GroupMeasurement] = []
    for x, y in groups:
        measured.append(measurer.measure(x, y, measured[0].pool if measured else options.pool, first=not measured))
    arrays = _to_arrays(measured, options.site, measurer.space)
    arrays |= _check(subject64, groups, measured[0], options)
    if options.lesions and options.replay:
        arrays |= measure_lesions(subject, groups, options.initial)
    if options.replay:
        arrays |= _probes(subject, groups, measured[0].pool, options)
    problems = _discontinuities(subject, groups) if options.replay and options.reference is None else []
    full = sum(len(g.frozen_pass.losses) == GROUP for g in measured)
    facts = {
        "layers": len(measured[0].frozen_pass.states),
        "samples": sum(len(g.frozen_pass.losses) for g in measured),
        "groups": full,
        "dtype": str(subject.dtype).removeprefix("torch."),
        "pool": measured[0].pool,
        "site": options.site,
        "labels": _labels(options, measurer.exact, len(measured[0].frozen_pass.states)),
        "sample_hash": groups.sample_hash,
        "found": list(subject.found),
        "skipped": [
            *subject.skipped,
            *([f"float64 replay: {why_not}"] if why_not else []),
            *measurer.skipped,
        ],
        "reference": DERIVATIVE if options.reference is None else GIVEN_REFERENCE,
        "credit": measurer.source,
        "reference_problems": problems,
        "updated": measurer.updated,
    }
    return Measurements(arrays, facts)


def _labels(options: MeasureOptions, same: Sequence[bool], layers: int) -> list[str] | None:
    """A label for each layer, or None if nothing is known; `same` are the layers where the credit is the derivative."""
    if options.labels is not None:
        if len(options.labels) != layers:
            raise InputError(f"labels= has {len(options.labels)} entries; expected one for each of {layers} states.")
        return list(options.labels)
    if not options.exact and not any(same):
        return None
    bad = [index for index in options.exact if not isinstance(index, int) or not -layers <= index < layers]
    if bad:
        raise InputError(f"exact= names the state {bad[0]!r}; the states are numbered 0 to {layers - 1}.")
    exact = {index % layers for index in options.exact} | {layer for layer, is_same in enumerate(same) if is_same}
    return ["exact" if layer in exact else "none" for layer in range(layers)]


def _check(
    subject64: Subject | None, groups: Groups, first: GroupMeasurement, options: MeasureOptions
) -> dict[str, Array]:
    """The reference check on the first samples; empty without a float64 replay, or if the user gave the reference."""
    if not options.check or subject64 is None or first.replay is None or options.reference is not None:
        return {}
    rows = torch.arange(CHECKED_SAMPLES)
    losses_at = subject64.losses_at(*pick(groups[0], rows.repeat(COPIES)))
    states, reference = ([layer[rows] for layer in part] for part in (first.replay.states, first.replay.reference))
    return check_reference(losses_at, states, reference)


def _probes(subject: Subject, groups: Groups, pool: str, options: MeasureOptions) -> dict[str, Array]:
    """Probes of this network and of the untrained one; empty without training samples."""
    if options.train is None or groups[0][1] is None:
        return {}
    test = [join([x for x, _ in groups]), torch.cat([y for _, y in groups if y is not None])]
    found = {"probe_correct": measure_probes(subject, options.train, (test[0], test[1]), pool)}
    untrained = None if options.initial is None else subject.with_parameters(options.initial)
    if untrained is not None:
        found["probe_initial"] = measure_probes(untrained, options.train, (test[0], test[1]), pool)
    return found


def _discontinuities(subject: Subject, groups: Groups) -> list[str]:
    found = subject.discontinuities(*pick(groups[0], torch.arange(PROBE_SAMPLES)))
    return [
        f"the operation '{name}' between h_{layer} and the loss has no useful derivative" if name else ""
        for layer, name in enumerate(found)
    ]


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


class _GroupMeasurer:
    """Measures one group after the other, with the credit's source decided on the first samples."""

    def __init__(self, subject: Subject, subject64: Subject | None, groups: Groups, options: MeasureOptions):
        self.skipped: list[str] = []
        self.exact: list[bool] = []
        """For each layer, whether the model's own backward pass returns the derivative there."""
        self.updated: list[str] | None = None
        self._subject, self._subject64, self._options = subject, subject64, options
        self.source = self._source(groups)
        self._fresh = self._fresh_credits()
        self.space: NullSpace = options.null_space or subject.rotation_space
        own = self.source in (RULE, BACKWARD) and options.update is None
        self._has_updates = own and options.updates and options.replay

    def _source(self, groups: Groups) -> str | None:
        """Where the credit comes from; None if there is none."""
        credit = self._options.credit
        if callable(credit):
            return GIVEN
        if credit is None:
            return None
        if isinstance(self._subject, NetworkSubject):
            return RULE if self._subject.has_rule else None
        deciding = self._subject64 or self._subject
        probe = pick(groups[0], torch.arange(CHECKED_SAMPLES))
        frozen_pass = deciding.run(*probe, backward=True)
        if frozen_pass.backward is None:
            deciding = self._subject
            frozen_pass = deciding.run(*probe, backward=True)
        if frozen_pass.backward is None:
            self.skipped.append(f"credit of the model's own backward: {frozen_pass.backward_problem}")
            return None
        tolerance = SAME_GRADIENT.get(deciding.dtype, 1e-2)
        pairs = zip(frozen_pass.backward, frozen_pass.reference, strict=True)
        self.exact = [float((own - g).double().norm()) <= tolerance * float(g.double().norm()) for own, g in pairs]
        return None if all(self.exact) and credit == "auto" else BACKWARD

    def _fresh_credits(self) -> list[Callable[[FrozenPass], Sequence[Tensor]]]:
        """Credit functions with freshly drawn feedback; empty if there is no feedback to draw."""
        if self.source is None:
            return []
        if self._options.fresh is not None:
            draw = self._options.fresh
            return [draw(generator(number, "fresh feedback")) for number in range(FRESH_DRAWS)]
        subject64 = self._subject64
        if self.source != RULE or not isinstance(subject64, NetworkSubject):
            return []
        states = (subject64.fresh_state(number) for number in range(FRESH_DRAWS))
        return [partial(subject64.credit_with, state=state) for state in states if state is not None]

    def measure(self, x: Any, y: Tensor | None, pool: str, first: bool) -> GroupMeasurement:
        """Run one group through the model and its float64 copy, with the credits of both."""
        subject, subject64 = self._subject, self._subject64
        backward, updates = self.source == BACKWARD, self._has_updates
        frozen_pass = self._with_reference(subject.run(x, y, backward=backward, updates=updates and not subject64))
        replay = self._with_reference(subject64.run(x, y, backward=backward, updates=updates)) if subject64 else None
        group = GroupMeasurement(frozen_pass, replay, None, None, choose_pool(replay or frozen_pass, pool))
        group.credit = self._credits(subject, frozen_pass)
        if subject64 and replay:
            group.credit64 = self._credits(subject64, replay)
        draws = [_check_shapes(credit(group.exact_pass), group.exact_pass) for credit in self._fresh]
        if draws:
            group.fresh = _fresh_cosines(group.exact_pass, draws, group.pool)
            group.fresh_used = _fresh_used(group.exact_pass, draws, self._options.site)
        if len(frozen_pass.losses) == GROUP:
            group.updates = self._update_cosines(x, y, group, draws if first else None)
        return group

    def _with_reference(self, frozen_pass: FrozenPass) -> FrozenPass:
        given = self._options.reference
        if given is None:
            return frozen_pass
        return replace(frozen_pass, reference=tuple(_check_shapes(given(frozen_pass), frozen_pass, "reference")))

    def _credits(self, subject: Subject, frozen_pass: FrozenPass) -> list[Tensor] | None:
        credit = self._options.credit
        if self.source == BACKWARD:
            found: Sequence[Tensor] | None = frozen_pass.backward
        elif callable(credit):
            found = credit(frozen_pass)
        else:
            found = subject.credit(frozen_pass) if self.source == RULE else None
        return None if found is None else _check_shapes(found, frozen_pass)

    def _update_cosines(
        self, x: Any, y: Tensor | None, group: GroupMeasurement, draws: Sequence[Sequence[Tensor]] | None
    ) -> dict[str, Tensor]:
        """Cosines of parameter gradients; for the first group also their null, with `draws` of fresh credits."""
        found = group.exact_pass.updates
        if self._options.update is not None and isinstance(self._subject, ModuleSubject):
            found = self._subject.user_updates(x, y, self._options.update)
        if found is None:
            return {}
        blocks = len(group.frozen_pass.states) - 1
        self.updated = list(found.parts)
        cosines_found = update_cosines(found, blocks)
        credits = group.exact_credit
        if draws is not None and found.pull is not None and credits is not None:
            places = [block if self._options.site == "input" else block + 1 for block in range(blocks)]
            null = [[drawn[place] for place in places] for drawn in draws]
            null = null or rotated([credits[place] for place in places], self.space)
            cosines_found["null_update"] = null_cosines(found, null)
        return cosines_found


def _fresh_cosines(exact: FrozenPass, draws: Sequence[Sequence[Tensor]], pool: str) -> list[Tensor]:
    layers = enumerate(exact.reference)
    drawn = ((torch.stack([_pooled(credits[index], pool) for credits in draws]), g) for index, g in layers)
    return [cosines(credits, _pooled(g, pool)) for credits, g in drawn]


def _fresh_used(exact: FrozenPass, draws: Sequence[Sequence[Tensor]], site: str | None) -> list[Tensor]:
    return [
        cosines(torch.stack([as_rows(used_credit(credits, block, site)) for credits in draws]), as_rows(g))
        for block, g in enumerate(exact.reference[1:])
    ]


def used_credit(credits: Sequence[Tensor], block: int, site: str | None) -> Tensor:
    """The credit that trains a block: that of its input under site=input, else that of its output."""
    return credits[block] if site == "input" else credits[block + 1]


def _check_shapes(found: Sequence[Tensor], frozen_pass: FrozenPass, what: str = "credit") -> list[Tensor]:
    """The tensors, detached; refused if their shapes are not those of the hidden states."""
    got = [tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in found]
    expected = [tuple(state.shape) for state in frozen_pass.states]
    if got != expected:
        raise InputError(f"The {what} has shapes {got}; expected one for each hidden state: {expected}.")
    return [each.detach() for each in found]


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


def _to_arrays(groups: Sequence[GroupMeasurement], site: str | None, space: NullSpace) -> dict[str, Array]:
    by_layer = [_layer_arrays(groups, index, space) for index in range(len(groups[0].frozen_pass.states))]
    names = set.intersection(*(set(numbers) for numbers in by_layer))
    found: dict[str, Array] = {n: np.stack([numbers[n] for numbers in by_layer]) for n in by_layer[0] if n in names}
    found |= _branch_norms(groups) | _group_cosines(groups) | _used_arrays(groups, site, space) | _update_arrays(groups)
    found["loss"] = _to_array(torch.cat([group.frozen_pass.losses for group in groups]))
    if groups[0].frozen_pass.logits is not None:
        found["correct"] = _to_array(torch.cat([_is_correct(group.frozen_pass) for group in groups]))
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


def _update_arrays(groups: Sequence[GroupMeasurement]) -> dict[str, Array]:
    full = [group.updates for group in groups if group.updates]
    if not full:
        return {}
    found = {name: torch.stack([part[name] for part in full], dim=-1) for name in full[0] if name != "null_update"}
    if "null_update" in full[0]:
        found["null_update"] = full[0]["null_update"]
    return {name: _to_array(values) for name, values in found.items()}


def _layer_arrays(groups: Sequence[GroupMeasurement], index: int, space: NullSpace) -> dict[str, Array]:
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
