"""Measure one model: one frozen pass over each group of samples, and its replay in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.measurements import DERIVATIVE, GROUP, NULL_GROUPS, RULE_CREDIT, Array, Measurements
from walkback.core.random_streams import generator
from walkback.measure.group_arrays import GroupMeasurement, choose_pool, pooled, to_arrays, used_credit
from walkback.measure.inputs import Groups, join, pick
from walkback.measure.lesions import measure_lesions
from walkback.measure.module_subject import ModuleSubject
from walkback.measure.options import MeasureOptions
from walkback.measure.preconditions import PROBE_SAMPLES, require_independent_samples
from walkback.measure.probes import measure_probes
from walkback.measure.reference_check import CHECKED_SAMPLES, COPIES, check_reference
from walkback.measure.subject import FrozenPass, NetworkSubject, Subject
from walkback.measure.updates import FRESH_GROUPS, fresh_update_cosines, update_cosines, update_null
from walkback.measure.vectors import NullSpace, as_rows, cosines

FRESH_DRAWS = 20
"""How often the feedback is drawn anew for the null of fresh feedback."""
SAME_GRADIENT = {torch.float64: 1e-6}
"""Relative difference above which the model's own backward pass is not the derivative; in other formats 1e-2."""
GIVEN_REFERENCE = "given by reference="
RULE, GIVEN, BACKWARD = RULE_CREDIT, "given by credit=", "the model's own backward"


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
        measured.append(measurer.measure(x, y, measured[0].pool if measured else options.pool))
    arrays = to_arrays(measured, options.site, measurer.space)
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
        NULL_GROUPS: sum(bool(group.fresh_updates) for group in measured),
        **({"repeated_samples": groups.repeats} if groups.repeats else {}),
        **_class_counts(measured),
    }
    return Measurements(arrays, facts)


def _class_counts(measured: Sequence[GroupMeasurement]) -> dict[str, Any]:
    """How many classes the labels and the predictions have, and the share of the most frequent label; empty if the
    model is no classifier."""
    passes = [group.frozen_pass for group in measured]
    labels_of_tokens = [found.y for found in passes if found.y is not None and found.y.ndim == 2]
    if len(labels_of_tokens) == len(passes) and not any(y.is_floating_point() for y in labels_of_tokens):
        return {"unigram_entropy": unigram_entropy(torch.cat(labels_of_tokens))}
    if not all(found.is_classified for found in passes):
        return {}
    logits, labels = ([getattr(found, name) for found in passes] for name in ("logits", "y"))
    true, predicted = torch.cat(labels), torch.cat([found.argmax(-1) for found in logits])
    counts = {name: int((found.bincount() > 0).sum()) for name, found in (("label", true), ("predicted", predicted))}
    return {**{f"{name}_classes": count for name, count in counts.items()}, "majority_share": majority_share(true)}


def unigram_entropy(labels: Tensor) -> float:
    """The loss in nats a token of always predicting the tokens' frequencies; negative labels mark ignored tokens."""
    known = labels.flatten()
    counts = known[known >= 0].long().bincount().double()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * shares.log()).sum())


def majority_share(labels: Tensor) -> float:
    """The accuracy of always predicting the most frequent label."""
    return float(labels.flatten().bincount().max()) / labels.numel()


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
    labels = groups[0][1]
    if options.train is None or labels is None or labels.ndim > 1:
        return {}
    test = join([x for x, _ in groups]), torch.cat([y for _, y in groups if y is not None])
    found = {"probe_correct": measure_probes(subject, options.train, test, pool)}
    if options.initial is not None:
        untrained = subject.with_parameters(options.initial)
        found["probe_initial"] = measure_probes(untrained, options.train, test, pool)
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
        self._measured = 0

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

    def measure(self, x: Any, y: Tensor | None, pool: str) -> GroupMeasurement:
        """Run one group through the model and its float64 copy, with the credits of both."""
        subject, subject64 = self._subject, self._subject64
        self._measured += 1
        backward, updates = self.source == BACKWARD, self._has_updates
        frozen_pass = self._with_reference(subject.run(x, y, backward=backward, updates=updates and not subject64))
        replay = self._with_reference(subject64.run(x, y, backward=backward, updates=updates)) if subject64 else None
        group = GroupMeasurement(frozen_pass, replay, None, None, choose_pool(replay or frozen_pass, pool))
        group.credit = self._credits(subject, frozen_pass)
        if subject64 and replay:
            group.credit64 = self._credits(subject64, replay)
        draws = [_check_shapes(credit(group.exact_pass.for_function()), group.exact_pass) for credit in self._fresh]
        if draws:
            group.fresh = _fresh_cosines(group.exact_pass, draws, group.pool)
            group.fresh_used = _fresh_used(group.exact_pass, draws, self._options.site)
        if len(frozen_pass.losses) == GROUP:
            group.updates = self._update_cosines(x, y, group, draws)
        # They hold a whole graph; only their cosines are needed after this group.
        group.frozen_pass = replace(frozen_pass, updates=None)
        group.replay = replace(replay, updates=None) if replay else None
        return group

    def _with_reference(self, frozen_pass: FrozenPass) -> FrozenPass:
        given = self._options.reference
        if given is None:
            return frozen_pass
        found = _check_shapes(given(frozen_pass.for_function()), frozen_pass, "reference")
        return replace(frozen_pass, reference=tuple(found))

    def _credits(self, subject: Subject, frozen_pass: FrozenPass) -> list[Tensor] | None:
        credit = self._options.credit
        if self.source == BACKWARD:
            found: Sequence[Tensor] | None = frozen_pass.backward
        elif callable(credit):
            found = credit(frozen_pass.for_function())
        else:
            found = subject.credit(frozen_pass) if self.source == RULE else None
        return None if found is None else _check_shapes(found, frozen_pass)

    def _update_cosines(
        self, x: Any, y: Tensor | None, group: GroupMeasurement, draws: Sequence[Sequence[Tensor]]
    ) -> dict[str, Tensor]:
        """Cosines of parameter gradients, and their null: with `draws` of fresh credits, or rotations."""
        found = group.exact_pass.updates
        if self._options.update is not None and isinstance(self._subject, ModuleSubject):
            found = self._subject.user_updates(x, y, self._options.update)
        if found is None:
            return {}
        blocks = len(group.frozen_pass.states) - 1
        self.updated = list(found.parts)
        cosines_found = update_cosines(found, blocks)
        credits = group.exact_credit
        if found.maps is not None and credits is not None:
            site, number = self._options.site, self._measured
            if not draws:
                group.update_nulls = [
                    update_null(found, block, used_credit(credits, block, site), self.space, number)
                    for block in range(blocks)
                ]
            elif number <= FRESH_GROUPS:
                group.fresh_updates = [
                    fresh_update_cosines(found, block, [used_credit(drawn, block, site) for drawn in draws])
                    for block in range(blocks)
                ]
        return cosines_found


def _fresh_cosines(exact: FrozenPass, draws: Sequence[Sequence[Tensor]], pool: str) -> list[Tensor]:
    layers = enumerate(exact.reference)
    drawn = ((torch.stack([pooled(credits[index], pool) for credits in draws]), g) for index, g in layers)
    return [cosines(credits, pooled(g, pool)) for credits, g in drawn]


def _fresh_used(exact: FrozenPass, draws: Sequence[Sequence[Tensor]], site: str | None) -> list[Tensor]:
    return [
        cosines(torch.stack([as_rows(used_credit(credits, block, site)) for credits in draws]), as_rows(g))
        for block, g in enumerate(exact.reference[1:])
    ]


def _check_shapes(found: Sequence[Tensor], frozen_pass: FrozenPass, what: str = "credit") -> list[Tensor]:
    """The tensors, detached; refused if their shapes are not those of the hidden states."""
    got = [tuple(each.shape) if isinstance(each, Tensor) else type(each).__name__ for each in found]
    expected = [tuple(state.shape) for state in frozen_pass.states]
    if got != expected:
        raise InputError(f"The {what} has shapes {got}; expected one for each hidden state: {expected}.")
    return [each.detach() for each in found]
