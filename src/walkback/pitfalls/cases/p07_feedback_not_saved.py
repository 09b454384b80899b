"""Feedback or bridges not saved: a script that falls back to backprop's own gradient reports 1.0.

Wrong: where the feedback file is missing, use the gradient as the credit: cos(BP, BP)
Right: no credit, an inconclusive verdict, and the name of the missing file
Size: at least 0.4 in cosine above the value with the original feedback
Linter: WB007, WB008, WB017, WB019
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch

from walkback.auditing.diagnose_runs import diagnose_run
from walkback.auditing.measure_run import RunMeasurer
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport
from walkback.measure.subject import FrozenPass, NetworkSubject
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome
from walkback.runs import store
from walkback.runs import train_runs as runs
from walkback.runs.run_index import RunIndex


def run() -> PitfallOutcome:
    resolved = small_networks.resolved("dfa", epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        runs.train_resolved(
            [resolved], runs.TrainOptions(Path(folder), device="cpu", driver="single"), runs.ProgressListener()
        )
        path = Path(folder) / resolved.name
        true = _diagnose(path).quantities.aggregates.deep_mean.known
        (path / store.RULE).unlink()
        report = _diagnose(path)
        leaves = {name: torch.from_numpy(leaf) for name, leaf in store.open_run(path, (store.RULE,)).model().items()}
        subject = NetworkSubject(resolved.net, leaves)
        frozen_pass = subject.run(*small_networks.samples())
        wrong = (
            cosines(as_rows(_careless_credit(path, frozen_pass)[1]), as_rows(frozen_pass.reference[1])).mean().item()
        )
    right = f"{report.verdict}: {'; '.join(report.reasons)}"
    return PitfallOutcome(wrong, right, wrong - true, "in cosine", 0.4, f"with the original feedback: {true:.3f}")


def _diagnose(path: Path) -> DiagnosticReport:
    run = store.open_run(path, without=(store.RULE,))
    measurer = RunMeasurer(None, small_networks.CPU)
    return diagnose_run(run, measurer.resolved(run), JudgeOptions(), measurer, RunIndex(path.parent))


def _careless_credit(path: Path, frozen_pass: FrozenPass) -> list[torch.Tensor]:
    """The credit, or without the feedback file the reference gradient, as careless scripts do."""
    if not (path / store.RULE).exists():
        return list(frozen_pass.reference)
    feedback = store.open_run(path).rule_state()
    assert frozen_pass.error is not None
    return [frozen_pass.error @ torch.from_numpy(feedback[f"B.{layer}"]) for layer in range(len(frozen_pass.states))]
