"""Verify a card against its run: compare hashes, measure the run again, judge it as the card states, compare.

Someone who changes a card can recompute its hash, and someone who changes a run can change its record. So everything
that can be measured is measured: every number of the card is computed again from the weights and the data.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from walkback.auditing.diagnose_runs import context_of, evidence_of, test_size
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.errors import InputError
from walkback.core.measurements import FIRST_EDITION, Measurements
from walkback.core.reading.array_files import read_arrays_file
from walkback.core.reading.regular_files import fault_of
from walkback.core.version import __version__
from walkback.data.dataset import DataSource
from walkback.judge.card import card_hash, read_card
from walkback.judge.card_schema import HASH
from walkback.judge.compare import (
    COMPARED_KEYS,
    IGNORED,
    Difference,
    Tolerance,
    added_checks,
    as_format_1,
    card_leaves,
    compare_cards,
    has_older_update_null,
    with_update_null_of,
    without_checks,
)
from walkback.judge.editions import CLAIMS_EDITION
from walkback.judge.evidence import BP_SHELL, Evidence, OracleAccuracies, TestLosses
from walkback.judge.headline import CLAIMED
from walkback.judge.options import JudgeOptions
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.judge.verification import Verification, VerificationCheck
from walkback.report.save import CARD
from walkback.runs import store
from walkback.runs.provenance import describe_device
from walkback.runs.run_index import RunIndex

_Card = Mapping[str, Any]
Columns = dict[str, list[float]]
BY_SAMPLES = (
    "statistics", "claims.depth", "claims.credit", f"verdicts.{CLAIMS_EDITION}", "chain[2]", "checklist[11]", "limits",
)  # fmt: skip
"""Parts of a card that need, for a single seed, which samples the baseline gets right."""


def verify_card(
    card_path: str | Path,
    bundle_path: str | Path,
    *,
    data_root: Path | None = None,
    device: torch.device | None = None,
    own_data: DataSource | None = None,
) -> Verification:
    """Confirm or refute the card of a run by measuring the run again; nothing is written.

    `own_data` is the data set of a run that was trained on tensors given in Python.
    """
    where, bundle = Path(card_path), Path(bundle_path).resolve()
    where = where / CARD if where.is_dir() else where
    card = read_card(where, as_it_is=True)
    origin = card["provenance"]
    if not isinstance(origin.get("files"), dict) or "config_digest" not in origin:
        raise InputError(
            f"The card {where} does not say which stored run it was measured from. Only the cards that "
            "`walkback diagnose RUN` writes can be verified: diagnose the run again."
        )
    if not (bundle / store.RECORD).is_file():
        raise InputError(f"There is no run at {bundle_path}. A run is a folder with a {store.RECORD} in it.")
    measurer = RunMeasurer(data_root, device or torch.device("cpu"), own_data)
    checks = [same_value("card hash", card[HASH], card_hash(card)), *_checkpoints(card, bundle)]
    unmeasured = ""
    if any(check.status == "differs" for check in checks[1:]):
        # The numbers of another checkpoint cannot be compared with this card.
        checks.append(
            VerificationCheck("numbers", "not_checked", "the checkpoint is not the one the card was made from")
        )
    else:
        try:
            if store.OWN_LOOP in origin:
                from walkback.auditing.own_loop.verify_job import measure_job_again  # It imports this module.

                unmeasured = measure_job_again(card, bundle, measurer.device, checks)
            else:
                unmeasured = measure_run_again(card, bundle, measurer, checks)
        except InputError as error:
            unmeasured = str(error)
            checks.append(VerificationCheck("numbers", "not_checked", unmeasured))
    notes = _notes(card, measurer.device)
    return Verification(str(where), str(bundle_path), tuple(checks), unmeasured, tuple(notes))


def same_value(what: str, stated: Any, found: Any) -> VerificationCheck:
    if stated != found:
        return VerificationCheck(what, "differs", Difference(what, stated, found).text)
    return VerificationCheck(what, "ok", found if isinstance(found, str) else "")


def _checkpoints(card: _Card, bundle: Path) -> list[VerificationCheck]:
    """Compare the files' own hashes with the card: the run's record may have been changed together with the files."""
    found, stated = [], card["provenance"]["files"]
    for name in dict.fromkeys((store.MODEL, store.RULE, *stated)):
        if Path(name).name != name:
            raise InputError(
                f"The card names the file '{name}', which is no file of a run's folder. Judge the run again."
            )
        path = bundle / name
        fault = fault_of(path, "Move it away, or train that run again.")
        actual = hashlib.sha256(read_arrays_file(path, fault)).hexdigest() if path.exists() else "no such file"
        if name == store.RULE and not path.exists() and not any(layer["credit"] for layer in card["layers"]):
            actual = stated.get(name, "")  # Missing already when the card was made: the card has no credit.
        if name in stated or path.exists():
            found.append(same_value(f"checkpoint {name}", stated.get(name), actual))
    return found


def measure_run_again(card: _Card, bundle: Path, measurer: RunMeasurer, checks: list[VerificationCheck]) -> str:
    """Add what measuring the run again says of the card; an `InputError` says why it cannot be measured here.

    Returns why part of the card could not be measured again; empty where everything was.
    """
    run = store.open_run(bundle, without=(store.RULE,))
    resolved = measurer.resolved(run)
    origin, claim = card["provenance"], card["claim"]
    checks.append(same_value("config digest", origin["config_digest"], run.record["digest"]))
    checks.append(same_value("config", origin.get("config"), resolved.config.to_json()))
    checks.append(same_value("data hash", claim["digest"], (run.record.get("data") or {}).get("digest")))
    # A card is compared with what its own version measured, read as its own version read it.
    taken = measurer.measure(run, resolved) if "blocks" in card else measurer.measure_first_edition(run, resolved)
    if card["format"] == 1:
        taken = replace(taken, facts={**taken.facts, FIRST_EDITION: True})
    check_accuracy(run, taken, checks)
    judge_options = judge_options_of(card, checks)
    run_index = RunIndex(bundle.parent)
    beside, why = Evidence(null=judge_options.null), "baseline runs are not beside the bundle"
    try:
        beside = evidence_of(
            resolved, judge_options.null, run_index, measurer.correct, test_size(taken), measurer.losses
        )
    except InputError as error:
        why = f"a run beside the bundle cannot be measured ({error})"
    evidence = beside if covers(beside, claim) else stated_evidence(card, beside, run, why, checks)
    context = context_of(run, resolved, taken, judge_options, run_index)
    again = judge(
        taken,
        evidence,
        judge_options.thresholds,
        judge_options.protocol,
        resolved.method,
        claim["notes"],
        context,
        claimed=card.get("claimed", CLAIMED),
    ).to_json()
    unknown: dict[str, str] = {}
    # An interval over samples needs the baseline itself, not only its accuracy.
    if evidence is not beside and card["statistics"]["counts"] == "samples":
        headline = ("verdict", "sentence") if card["protocol"] == CLAIMS_EDITION else ()
        unknown |= dict.fromkeys((*BY_SAMPLES, *headline), "it needs the baseline run")
    found = as_format_1(again) if card["format"] == 1 else again
    compare_with_card(without_folder_notes(card), without_folder_notes(found), unknown, checks)
    foreign = ", ".join(added_checks(again, card))
    return f"this installation lacks the check {foreign}; install the package that adds it" if foreign else ""


def without_folder_notes(card: _Card) -> _Card:
    """The card without its notes on damaged runs in the same folder: these are about the folder and contain paths."""
    return {**card, "limits": [line for line in card["limits"] if " was left out: " not in line]}


def compare_with_card(card: _Card, again: _Card, unknown: Mapping[str, str], checks: list[VerificationCheck]) -> None:
    """Add one check for each part of the card that agrees and one for each value that does not.

    `unknown` are the keys of parts that cannot be compared, with the reason.
    """
    added, foreign = added_checks(card, again), added_checks(again, card)
    checks += [VerificationCheck(f"checks.{name}", "not_checked", "the card has no such check") for name in added]
    checks += [VerificationCheck(f"checks.{name}", "not_checked", "no such check here") for name in foreign]
    card = without_checks(card, foreign)
    if has_older_update_null(card):
        again = with_update_null_of(card, again)
        checks.append(
            VerificationCheck("update_z", "not_checked", f"{card['walkback']} estimated its null in another way")
        )
    differences = compare_cards(card, again, wording=card["walkback"] == __version__)
    found = [difference for difference in differences if not _is_within(difference.key, unknown)]
    sizes = Counter(path[0] for path, _ in card_leaves(again))
    for section in (name for name in again if name not in IGNORED):
        size = sizes[section]
        differing = [difference for difference in found if difference.section == section]
        checks += [VerificationCheck(difference.key, "differs", difference.text) for difference in differing]
        if section in unknown:
            checks.append(VerificationCheck(section, "not_checked", f"not re-checked: {unknown[section]}"))
        elif not differing:
            checks.append(VerificationCheck(section, "ok", f"{size} value{' agrees' if size == 1 else 's agree'}"))


def _is_within(key: str, parts: Iterable[str]) -> bool:
    """Whether a key is one of these parts of a card, or inside of one."""
    return any(key == part or key.startswith((f"{part}.", f"{part}[")) for part in parts)


def check_accuracy(run: store.Run, taken: Measurements, checks: list[VerificationCheck]) -> None:
    """Compare the test accuracy of the weights with the recorded one, which the card uses."""
    right, recorded = taken.arrays["test_correct"], run.record["result"].get("test_acc")
    if not isinstance(recorded, int | float):
        raise store.damaged_run(run.path, f"{store.RECORD} has the test accuracy {recorded!r}")
    accuracy = float(right.mean())
    # One sample may be so close to two classes that rounding decides.
    fits = Tolerance(1e-3, 1.5 / len(right)).agree(accuracy, recorded)
    said = f"the weights get {accuracy!r}, {store.RECORD} says {recorded!r}"
    checks.append(VerificationCheck("test accuracy", "ok" if fits else "differs", said))


def judge_options_of(card: _Card, checks: list[VerificationCheck]) -> JudgeOptions:
    """How the card was judged; thresholds that are refused are named among the checks, and the default ones taken."""
    thresholds = None
    try:
        thresholds = DiagnosticThresholds.from_json(card["thresholds"])
    except InputError as error:
        checks.append(VerificationCheck("thresholds", "differs", str(error)))
    null = card["claim"]["null"]
    return JudgeOptions(thresholds, card["protocol"], "bp_shell" if null == BP_SHELL else "method_shell")


def covers(beside: Evidence, claim: _Card) -> bool:
    """Whether the folder has all runs that the card refers to.

    If there are more, comparing the cards names the seeds or baselines that this card leaves out.
    """
    found, stated = _columns(beside.to_json()), _columns(claim)
    return found.keys() >= stated.keys() and len(found["headline_acc"]) >= len(stated["headline_acc"])


def stated_evidence(
    card: _Card, beside: Evidence, run: store.Run, why: str, checks: list[VerificationCheck]
) -> Evidence:
    """The card's own accuracies, after comparing those whose runs are there."""
    claim = card["claim"]
    # A seed that could not be paired has a card, but no part in the accuracies on it.
    own = run.record["result"].get("test_acc") if run.record["seed"] in claim["seeds"] else None
    checks += _in_part(_columns(claim), _columns(beside.to_json()), own)
    checks.append(
        VerificationCheck("other accuracies", "not_checked", f"not re-checked: {why}; the card's numbers were taken")
    )
    try:
        frozen = {name: tuple(values) for name, values in claim["frozen"].items()}
        oracles = {
            name: OracleAccuracies(
                each["method"],
                tuple(each["acc"]),
                tuple(each["frozen_acc"]),
                loss=tuple(each.get("loss", ())),
                frozen_loss=tuple(each.get("frozen_loss", ())),
            )
            for name, each in claim.get("oracles", {}).items()
        }
        return Evidence(
            tuple(claim["headline_acc"]),
            frozen,
            tuple(claim["bp_acc"]),
            beside.null,
            seeds=tuple(claim["seeds"]),
            oracles=oracles,
            test_samples=claim.get("test_samples"),
            losses=_stated_losses(claim.get("losses")),
        )
    except InputError as error:
        checks.append(VerificationCheck("claim", "differs", str(error)))
        return beside


def _stated_losses(stated: Any) -> TestLosses | None:
    if not stated:
        return None
    frozen = {name: tuple(values) for name, values in stated.get("frozen", {}).items()}
    return TestLosses(tuple(stated["headline"]), frozen, tuple(stated["bp"]))


def _in_part(stated: Columns, found: Columns, own: float | None) -> list[VerificationCheck]:
    """Compare the card's accuracies with those runs that are there."""
    checks = []
    if own is not None and not any(COMPARED_KEYS.agree(own, accuracy) for accuracy in stated["headline_acc"]):
        said = f"the card has {stated['headline_acc']}, and this run's {own!r} is not among them"
        checks.append(VerificationCheck("claim.headline_acc", "differs", said))
    checks += [same_value(f"claim.{name}", [], found[name]) for name in sorted(found.keys() - stated.keys())]
    names = sorted(found.keys() & stated.keys())
    on_card, here = (list(zip(*(columns[name] for name in names), strict=False)) for columns in (stated, found))
    for row in here:
        if not any(all(map(COMPARED_KEYS.agree, row, other)) for other in on_card):
            said = f"the runs of one seed beside the bundle give {row}, which is not on the card"
            checks.append(VerificationCheck(f"claim: {', '.join(names)}", "differs", said))
    return checks


def _columns(claim: _Card) -> Columns:
    """One list over seeds for the headline, and for each baseline that there is."""
    others = {f"frozen.{name}": values for name, values in claim["frozen"].items()} | {"bp_acc": claim["bp_acc"]}
    return {"headline_acc": claim["headline_acc"], **{name: values for name, values in others.items() if values}}


def _notes(card: _Card, device: torch.device) -> list[str]:
    """What may explain differences: device, versions, thresholds."""
    said = []
    measured_on, here = card["provenance"].get("measured_on"), describe_device(device)
    if measured_on != here:
        said.append(f"the card was measured on {measured_on}, this is {here}")
    versions = {"walkback": (card["walkback"], __version__)}
    trained = card["provenance"].get("trained")
    if isinstance(trained, dict):
        versions["torch (the card: in training)"] = (trained.get("torch"), torch.__version__)
    said += [f"{name} {theirs} on the card, {ours} here" for name, (theirs, ours) in versions.items() if theirs != ours]
    if card["walkback"] != __version__:
        said.append(
            "the card's sentences are those of another version and were not compared, only numbers and outcomes"
        )
    said += [line for line in card["limits"] if line.startswith("The threshold ")]
    return said
