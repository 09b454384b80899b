"""`python -m protocol.smoke_test`: train, diagnose, and see whether the verdicts come out as expected.

The reference package loads its authors' checkpoints; this one trains small networks on the embedded task (no download,
about a minute on two cores) and judges them by the same four diagnostics. Exit code 0 where every verdict is as
expected, 1 where one is not.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from walkback.api import train
from walkback.judge.report import DiagnosticReport

ARCH, EPOCHS, LR, SEED = "resmlp:d=64", 12, 0.01, 42
EXPECTED = {"bp": "trustworthy", "dfa:scale=unit_error,site=input": "walked_back"}
SHELLS = ("bp:shell=bp", "dfa:scale=unit_error,site=input,shell=method")


def reports(out: Path) -> list[DiagnosticReport]:
    """Train the methods and their shells into `out`, and judge the methods."""
    import torch

    from walkback.studies.diagnosis import Judging, diagnose_runs

    results = train([*EXPECTED, *SHELLS], arch=ARCH, seeds=SEED, epochs=EPOCHS, lr=LR, out=out, device="cpu")
    paths = [Path(result.path) for result in results[: len(EXPECTED)]]
    return list(diagnose_runs(paths, Judging(protocol="four"), data_root=None, device=torch.device("cpu")))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        found = reports(Path(folder))
    agrees = True
    for report, expected in zip(found, EXPECTED.values(), strict=True):
        sys.stdout.write(f"{report}\n\n")
        agrees &= report.verdict == expected
    for report, expected in zip(found, EXPECTED.values(), strict=True):
        word = "as expected" if report.verdict == expected else f"EXPECTED {expected}"
        sys.stdout.write(f"{report.method_name:<34} {report.verdict:<12} {word}\n")
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
