"""Feedback or bridges not saved: a script that falls back to backprop's own gradient reports 1.0.

Wrong: where the feedback file is missing, use the gradient as the credit: cos(BP, BP)
Right: no credit, an inconclusive verdict, and the name of the missing file
Size: at least 0.4 in cosine above what the lost feedback really gave
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
from walkback.measure.subject import FrozenPass, OwnSubject
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome
from walkback.runs import store
from walkback.runs import train_runs as runs
from walkback.runs.run_index import RunIndex


def run() -> PitfallOutcome:
    resolved = small.resolved("dfa", epochs=1)
    with tempfile.TemporaryDirectory() as folder:
        runs.train_configs(
            [resolved.config], runs.TrainOptions(Path(folder), device="cpu", driver="single"), runs.ProgressListener()
        )
        path = Path(folder) / resolved.name
        true = _diagnosed(path).quantities.aggregates.deep_mean.known
        (path / store.RULE).unlink()
        report = _diagnosed(path)
        leaves = {name: torch.from_numpy(leaf) for name, leaf in store.open_run(path, (store.RULE,)).model().items()}
        subject = OwnSubject(resolved.net, leaves)
        seen = subject.run(*small.samples())
        wrong = cosines(as_rows(_careless_credit(path, seen)[1]), as_rows(seen.reference[1])).mean().item()
    right = f"{report.verdict}: {'; '.join(report.reasons)}"
    return PitfallOutcome(wrong, right, wrong - true, "in cosine", 0.4, f"with the feedback that was lost: {true:.3f}")


def _diagnosed(path: Path) -> DiagnosticReport:
    run = store.open_run(path, without=(store.RULE,))
    return diagnose_run(run, JudgeOptions(), RunMeasurer(None, small.CPU), RunIndex(path.parent))


def _careless_credit(path: Path, seen: FrozenPass) -> list[torch.Tensor]:
    """What such scripts do."""
    if not (path / store.RULE).exists():
        return list(seen.reference)
    feedback = store.open_run(path).rule_state()
    assert seen.error is not None
    return [seen.error @ torch.from_numpy(feedback[f"B.{layer}"]) for layer in range(len(seen.states))]
