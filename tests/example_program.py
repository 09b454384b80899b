"""Run an example's program in a folder of its own, and read what its audit stored."""

from __future__ import annotations

import difflib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import torch

from walkback.auditing.own_loop.measure_plan import LOOP
from walkback.runs import store

EXAMPLES = Path(__file__).parents[1] / "examples"
T_2 = 4.302652729696142
"""97.5% quantile of Student's t with 2 degrees of freedom."""


def added_lines(folder: Path) -> list[str]:
    """The lines that `after.py` adds to the researcher's own code, which knows nothing of walkback."""
    before, after = ((folder / name).read_text().splitlines() for name in ("before.py", "after.py"))
    assert "walkback" not in "\n".join(before)
    return [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and line[2:].strip()]


def run_program(folder: Path, *program: object) -> str:
    """What a program prints."""
    with _start(folder, *program) as process:
        printed, errors = process.communicate()
    assert process.returncode == 0, errors
    return printed


def _start(folder: Path, *program: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, program)],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "SIZE": "tiny"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def load_example(folder: Path) -> ModuleType:
    """The example's module `after`, in its tiny size."""
    before = os.environ.get("SIZE")
    os.environ["SIZE"] = "tiny"
    spec = importlib.util.spec_from_file_location(f"{folder.name.replace('-', '_')}_after", folder / "after.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ.pop("SIZE") if before is None else os.environ.update(SIZE=before)
    return module


def stored_model(model: torch.nn.Module, path: Path) -> torch.nn.Module:
    """The model with the weights of a job, in float64 and evaluation mode, loaded without walkback's help."""
    arrays = store.open_run(path).params()
    model.load_state_dict({key: torch.from_numpy(value) for key, value in arrays.items()})
    return model.double().eval()


def check_kills(folder: Path, program: Path, audited: Path, printed: str, seed: int) -> None:
    """Killed at three moments the program goes on to the same bits as `audited`, and keeps what was finished; a further
    run trains nothing and prints the same table."""
    draws, audit, kept = random.Random(seed), folder / "audit", {}
    for _ in range(3):
        _kill(folder, program, draws.uniform(0, 3))
        kept |= {run: run.stat().st_mtime_ns for run in audit.glob(f"*/{store.MODEL}")}
    assert len(kept) < len(_weights(audited)), "every training was finished before it could be killed"
    run_program(folder, program)
    assert _weights(audit) == _weights(audited)
    assert {run: run.stat().st_mtime_ns for run in kept} == kept
    before = {path: path.stat().st_mtime_ns for path in audit.glob("*/run.json")}
    again = run_program(folder, program)
    assert {path: path.stat().st_mtime_ns for path in audit.glob("*/run.json")} == before
    assert len(again.splitlines()) > 3
    assert printed.endswith(again)


def _kill(folder: Path, program: Path, seconds: float) -> None:
    """Start a program, and kill it so many seconds after it has begun to train; it plans its trainings before."""
    plan = folder / "audit" / LOOP
    before = plan.stat().st_mtime_ns if plan.exists() else None
    with _start(folder, program) as process:
        while process.poll() is None and (not plan.exists() or plan.stat().st_mtime_ns == before):
            time.sleep(0.05)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()


def _weights(folder: Path) -> dict[str, bytes]:
    """The bits of every job."""
    return {path.name: (path / store.MODEL).read_bytes() for path in folder.iterdir() if path.is_dir()}
