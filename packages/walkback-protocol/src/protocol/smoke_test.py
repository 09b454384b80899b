"""`python -m protocol.smoke_test`: train, diagnose, and see whether the verdicts come out as expected.

The reference package loads its authors' checkpoints; this one trains small networks on the embedded task (no download,
about a minute on two cores) and judges them by the same four diagnostics. Exit code 0 where every verdict is as
expected, 1 where one is not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from walkback.api import train
from walkback.judge.report import DiagnosticReport

RECIPE: dict[str, Any] = {
    "arch": "resmlp:d=32",
    "data": "prototypes:train=3200,test=1024",
    "epochs": 12,
    "lr": 0.01,
    "batch": 64,
}
"""The studies' smoke scale, the same for every method."""
SEED = 42
EXPECTED = {"bp": "trustworthy", "dfa:scale=unit_error,site=input": "walked_back"}
SHELLS = ("bp:shell=bp", "dfa:scale=unit_error,site=input,shell=method")
WITHOUT_DEPTH = {"ep": "trustworthy"}
"""Judged with (d) not checked, as the reference package judges EP."""


def reports(out: Path) -> list[DiagnosticReport]:
    """Train the methods and the shells into `out`, and judge the methods."""
    # A baseline counts where it lies beside the run, so what is judged without one gets a folder of its own.
    return [
        *_judged(out / "depth", [*EXPECTED, *SHELLS]),
        *_judged(out / "no_depth", list(WITHOUT_DEPTH)),
    ]


def _judged(out: Path, methods: list[str]) -> list[DiagnosticReport]:
    import torch

    from walkback.auditing.diagnose_runs import diagnose_runs
    from walkback.auditing.measure_run import RunMeasurer
    from walkback.judge.options import JudgeOptions
    from walkback.runs.train_runs import ProgressListener

    results = train(methods, seeds=SEED, out=out, device="cpu", **RECIPE)
    paths = [Path(result.path) for result in results if "shell=" not in result.method]
    measurer = RunMeasurer(None, torch.device("cpu"))
    return list(diagnose_runs(paths, JudgeOptions(protocol="four"), measurer, ProgressListener()))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = reports(Path(folder))
    cases = list(zip(found, (EXPECTED | WITHOUT_DEPTH).values(), strict=True))
    for report, _ in cases:
        sys.stdout.write(f"{report}\n\n")
    for report, expected in cases:
        word = "as expected" if report.verdict == expected else f"EXPECTED {expected}"
        sys.stdout.write(f"{report.method_name:<34} {report.verdict:<12} {word}\n")
    return 0 if all(report.verdict == expected for report, expected in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
