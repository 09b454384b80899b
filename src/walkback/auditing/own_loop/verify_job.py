"""Verify the card of a job: build its model, load its weights, measure it again, and compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from walkback.auditing.own_loop.function_reference import FunctionReference, changed_sources, source_hashes
from walkback.auditing.own_loop.jobs import BACKPROP, LoopJob
from walkback.auditing.own_loop.judge_jobs import JobFolder, evidence_of_jobs, judge_job, measure_job, spec_of
from walkback.auditing.own_loop.measure_plan import ChangedPlanError, MeasurePlan, read_loop
from walkback.auditing.own_loop.train_job import CORRECT
from walkback.auditing.verify import (
    compare_with_card,
    covers,
    judge_options_of,
    same_value,
    stated_evidence,
    without_folder_notes,
)
from walkback.core.errors import InputError
from walkback.judge.evidence import Evidence
from walkback.judge.headline import CLAIMED
from walkback.judge.verification import VerificationCheck
from walkback.runs import store


def measure_job_again(
    card: Mapping[str, Any], bundle: Path, device: torch.device, checks: list[VerificationCheck]
) -> str:
    """Add what measuring the job again says of its card; returns why part of it could not be measured."""
    run = store.open_run(bundle, without=(store.RULE,))
    origin, claim = card["provenance"], card["claim"]
    checks.append(same_value("config digest", origin["config_digest"], run.record["digest"]))
    try:
        document, plan = read_loop(bundle.parent), MeasurePlan.load(bundle.parent)
    except ChangedPlanError as error:
        checks.append(VerificationCheck(error.name, "differs", "it is not the file that the audit wrote"))
        return str(error)
    checks += _sources(origin[store.OWN_LOOP]["sources"], document)
    checks += _accuracy(run)
    taken = measure_job(run, plan, device)
    judge_options = judge_options_of(card, checks)
    jobs, spec = JobFolder(bundle.parent), spec_of(run)
    seeds = claim["seeds"] or [spec.seed]  # Without accuracies the card has no seeds.
    beside, why = Evidence(null=judge_options.null), "jobs of the audit are not beside this one"
    try:
        beside = evidence_of_jobs(spec, seeds, judge_options.null, jobs)
    except InputError as error:
        why = f"a job beside this one cannot be read ({error})"
    evidence = beside if covers(beside, claim) else stated_evidence(card, beside, run, why, checks)
    others = [found for each in _beside(spec, seeds) if (found := jobs.finished(each)) is not None]
    claimed = card.get("claimed", CLAIMED)
    described = document["described"]
    again = judge_job(run, taken, evidence, plan, described, judge_options, others, claimed).to_json()
    compare_with_card(without_folder_notes(card), without_folder_notes(again), {}, checks)
    return ""


def _beside(spec: LoopJob, seeds: list[int]) -> list[LoopJob]:
    """The jobs that the card's numbers come from."""
    found = []
    for seed in seeds:
        own = spec.with_seed(seed)
        found += [own, own.baseline, own.backprop, own.backprop.baseline]
        found += [] if spec.method == BACKPROP else [own.oracle, own.oracle.baseline]
    return found


def _sources(stored: Mapping[str, str], document: Mapping[str, Any]) -> list[VerificationCheck]:
    """Compare the source files that trained the model with those that are there."""
    functions = document["functions"]
    known = [FunctionReference.from_json(dict(functions[name])) for name in ("train", "build")]
    now = source_hashes(known)
    changed, gone = changed_sources(dict(stored), now), sorted(stored.keys() - now.keys())
    checks = [
        VerificationCheck(
            f"source {name}", "differs", f"its sha256 was {stored[name][:12]}…, here it is {now[name][:12]}…"
        )
        for name in changed
    ]
    if gone:
        why = "not imported here, or not there: the model was built without"
        checks.append(VerificationCheck("sources", "not_checked", f"{', '.join(gone)} ({why})"))
    if not changed and not gone:
        checks.append(VerificationCheck("sources", "ok", f"{len(stored)} files as in training"))
    return checks


def _accuracy(run: store.Run) -> list[VerificationCheck]:
    """Compare the recorded test accuracy with the stored correctness; the test set itself is not stored."""
    correct, stated = run.other(CORRECT).get("correct"), run.record["result"].get("test_acc")
    checks = (
        [] if correct is None else [same_value("test accuracy of correct.safetensors", stated, float(correct.mean()))]
    )
    return [
        *checks,
        VerificationCheck(
            "test accuracy of the weights", "not_checked", "the test set is not stored; only you have it"
        ),
    ]
