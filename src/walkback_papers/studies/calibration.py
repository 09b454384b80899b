"""Calibration: how often are the claims wrong on methods whose truth is known, and do the intervals cover?

Papers: ours; neither paper states the error rates of its checks
Claim: a claim that is true is rarely walked back, a claim that is false rarely passes, and 95% intervals cover
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from walkback.core.configuration import RunConfig, grid
from walkback.core.random_streams import stream_seed
from walkback.report.study_report import Finding, StudyReport
from walkback.runs.train_runs import TrainOptions
from walkback.training.resolved_run import resolve
from walkback_papers import coverage
from walkback_papers.calibration import audited_methods, own_loop, own_methods
from walkback_papers.calibration.claim_tables import alignment_table, depth_table, rates_table, seeds_text
from walkback_papers.calibration.coverage_tables import coverage_summary_table, coverage_table, coverage_text
from walkback_papers.calibration.own_loop import OwnTask
from walkback_papers.calibration.rates import (
    CLAIM_NAMES,
    GROUP_SIZES,
    PASSED,
    WALKED_BACK,
    ClaimName,
    KnownMethod,
    mixed,
    rate,
)
from walkback_papers.calibration.seed_results import SeedResult
from walkback_papers.coverage import CoverageRow, coverage_rows
from walkback_papers.experiments import Experiment
from walkback_papers.results import Results
from walkback_papers.scale import Place, Scale
from walkback_papers.study import Study
from walkback_papers.tables import all_true, make_study_report, side_of_line

_PLACES = {
    "prototypes": Place("resmlp:d=32,depth=2", "prototypes:train=3200,test=1024"),
    "few prototypes": Place("resmlp:d=32,depth=2", "prototypes:train=3200,test=1024,prototypes=20,noise=0.9"),
    "teacher": Place("student_net:d=32,depth=2", "teacher:train=6400,test=1024,dim=16"),
}
_EPOCHS, _BATCH = 6, 64
_TRAINING: dict[str, Any] = {"epochs": _EPOCHS, "lr": 0.01, "batch": _BATCH}
_OWN_WIDTH, _OWN_DEPTH = 32, 3
_SEEDS_EACH = 10
"""Seeds of one experiment with own training loops."""
_COLLAPSE_SHARE = 0.2
_RARE = 0.05
"""Errors in fewer groups than this are called rare."""


@dataclass(frozen=True)
class _Size:
    """What a scale sets: the tasks are the embedded ones at every scale."""

    seeds: tuple[int, ...]
    places: tuple[str, ...]
    draws: int


_SIZES = {
    "smoke": _Size(tuple(range(1, 7)), ("prototypes",), 500),
    "paper": _Size(tuple(range(1, 41)), tuple(_PLACES), coverage.COVERAGE_DRAWS),
}


class JudgeCalibration(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return []

    def experiments(self, scale: Scale) -> list[Experiment]:
        size = _SIZES[scale.name]
        found = [_coverage(size)]
        for place in size.places:
            found += [_audited(place, size), *_own(place, size)]
        return found

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        size = _SIZES[scale.name]
        methods = [method for place in size.places for method in _methods_at(place, size, results)]
        covered = [_coverage_row(stored) for stored in results.of_experiment(_coverage(size))["rows"]]
        report = make_study_report(
            "calibration",
            "Calibration",
            "How often are the claims wrong on methods whose truth is known, and do the intervals cover?",
            scale,
            [],
            _findings(methods, covered),
            tables=[
                *(table(methods, size.places, size.seeds) for table in (rates_table, depth_table, alignment_table)),
                coverage_summary_table(covered),
                coverage_table(covered),
            ],
        )
        facts = (
            f"Embedded tasks at every scale ({', '.join(size.places)}): the judge is calibrated, CIFAR is not.",
            f"{len(size.seeds)} seeds, {size.draws} draws of each simulation.",
        )
        commands = (
            report.commands[0],
            report.commands[1].replace("the numbers in ../runs", "the results in experiments"),
        )
        return replace(report, facts=facts, commands=commands)


def _coverage(size: _Size) -> Experiment:
    def perform(options: TrainOptions) -> dict[str, Any]:
        return {"rows": [asdict(row) for row in coverage_rows(size.draws)]}

    return Experiment("coverage", {"draws": size.draws, "seed": 0}, perform)


def _coverage_row(stored: dict[str, Any]) -> CoverageRow:
    required = stored["required"]
    return CoverageRow(**{**stored, "required": None if required is None else tuple(required)})


def _hyphenated(place: str) -> str:
    return place.replace(" ", "-")


def _audited(place: str, size: _Size) -> Experiment:
    where = _PLACES[place]
    configs = grid(
        list(audited_methods.AUDITED.values()), arch=where.arch, data=where.data, seeds=list(size.seeds), **_TRAINING
    )
    settings = {
        **{name: getattr(where, name) for name in ("arch", "data")},
        **_TRAINING,
        "methods": audited_methods.AUDITED,
        "seeds": list(size.seeds),
    }
    return Experiment(f"audited-{_hyphenated(place)}", settings, partial(audited_methods.audited_results, configs))


def _own(place: str, size: _Size) -> list[Experiment]:
    """Methods with their own training loop, some seeds in each experiment."""
    where = _PLACES[place]
    settings = {
        "data": where.data,
        "width": _OWN_WIDTH,
        "depth": _OWN_DEPTH,
        "epochs": _EPOCHS,
        "batch": _BATCH,
        "lr": own_loop.LEARNING_RATE,
        "weight_decay": own_loop.WEIGHT_DECAY,
        "methods": list(own_methods.ALIGNED),
    }

    def of_seeds(seeds: Sequence[int]) -> Experiment:
        def perform(options: TrainOptions) -> dict[str, Any]:
            source = resolve(grid("bp", arch=where.arch, data=where.data, **_TRAINING)[0]).source
            task = OwnTask(
                source.load(options.data_root),
                _OWN_WIDTH,
                _OWN_DEPTH,
                _EPOCHS,
                _BATCH,
            )
            return own_methods.own_results(task, seeds)

        name = f"own-{_hyphenated(place)}-{seeds[0]}-to-{seeds[-1]}"
        return Experiment(name, {**settings, "seeds": list(seeds)}, perform)

    return [of_seeds(size.seeds[start : start + _SEEDS_EACH]) for start in range(0, len(size.seeds), _SEEDS_EACH)]


def _methods_at(place: str, size: _Size, results: Results) -> list[KnownMethod]:
    audited = results.of_experiment(_audited(place, size))
    found = [
        # Backprop's credit is exact; of the others' alignment nothing is known by construction.
        KnownMethod(name, place, _seeds(stored), audited["majority_share"], True, True if name == "BP" else None)
        for name, stored in audited["methods"].items()
    ]
    parts = [results.of_experiment(experiment) for experiment in _own(place, size)]
    share = parts[0]["majority_share"]
    own = {}
    for name, aligned in own_methods.ALIGNED.items():
        seeds = _seeds([stored for part in parts for stored in part["methods"][name]])
        has_own_depth = name in own_methods.OWN_DEPTH_METHODS
        own[name] = KnownMethod(name, place, seeds, share, False, aligned, has_own_depth=has_own_depth)
    draws = np.random.default_rng(stream_seed(0, f"calibration collapse {place}"))
    name = f"own loop: blocks reset in a seed with probability {_COLLAPSE_SHARE:g}"
    two_modes = mixed(own[own_methods.OWN_BACKPROP], own[own_methods.RESET], name, _COLLAPSE_SHARE, draws)
    return [*found, *own.values(), two_modes]


def _seeds(stored: Sequence[dict[str, Any]]) -> tuple[SeedResult, ...]:
    return tuple(SeedResult.from_json(each) for each in stored)


def _findings(methods: Sequence[KnownMethod], covered: Sequence[CoverageRow]) -> list[Finding]:
    required = [row for row in covered if row.required is not None]
    bad = [row for row in required if not row.passes]
    two_modes = [row for row in covered if row.interval == coverage.PAIRED_SEEDS and not row.assumptions_hold]
    failing = "; ".join(f"{row.interval}, {row.setting}: {coverage_text(row)}" for row in bad)
    found = [
        Finding(
            "intervals-cover",
            "Every printed interval has the required coverage where its assumptions hold.",
            all_true(row.is_as_required for row in required),
            f"{len(required) - len(bad)} of {len(required)} settings{f'; not: {failing}' if bad else ''}.",
        ),
        Finding(
            "intervals-cover-two-modes",
            "The interval over seeds covers a margin whose seeds have two modes in 93% as well.",
            all_true(side_of_line(row.coverage_interval, coverage.LEAST_COVERAGE) for row in two_modes),
            f"{'; '.join(f'{row.setting}: {coverage_text(row)}' for row in two_modes)}.",
        ),
    ]
    for claim in CLAIM_NAMES:
        found.append(_rare(methods, claim, True))
        found.append(_rare(methods, claim, False))
    return found


def _rare(methods: Sequence[KnownMethod], claim: ClaimName, truth: bool) -> Finding:
    answer = WALKED_BACK if truth else PASSED
    rates = {n: rate(methods, claim, n, truth=truth, answer=answer) for n in GROUP_SIZES}
    words = f"A true {claim} claim is walked back" if truth else f"A false {claim} claim passes"
    if claim == "headline":
        words = (
            "A headline that should be trustworthy is walked back"
            if truth
            else "A headline that should not be trustworthy is"
        )
    return Finding(
        f"{claim}-{'true-rarely-walked-back' if truth else 'false-rarely-passes'}",
        f"{words} in fewer than {100 * _RARE:g}% of the groups.",
        all_true(found.is_below(_RARE) for found in rates.values()),
        f"{'; '.join(f'{seeds_text(n)}: {found.text}' for n, found in rates.items())}.",
    )


STUDY = JudgeCalibration()
