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

from walkback.runs import store

EXAMPLES = Path(__file__).parents[1] / "examples"
T_2 = 4.302652729696142
"""97.5% quantile of Student's t with 2 degrees of freedom."""


def added_lines(folder: Path) -> list[str]:
    """The lines that `after.py` adds to the researcher's own code, which knows nothing of walkback."""
    before, after = ((folder / name).read_text().splitlines() for name in ("before.py", "after.py"))
    assert "walkback" not in "\n".join(before)
    return [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and line[2:].strip()]


def run_program(folder: Path, *program: object, kill_after: float | None = None) -> str:
    """What a program prints; with `kill_after` it is killed after so many seconds."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SIZE": "tiny"}
    with subprocess.Popen(
        [sys.executable, *map(str, program)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if kill_after is not None:
            time.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
        printed, errors = process.communicate()
    assert kill_after is not None or process.returncode == 0, errors
    return printed


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


def check_kills(program: Path, audited: Path, first_line: str, seed: int) -> None:
    """Killed at three moments the program goes on to the same bits as `audited`; a further run trains nothing."""
    folder, draws = program.parent, random.Random(seed)
    for _ in range(3):
        run_program(folder, program, kill_after=draws.uniform(3, 9))
    run_program(folder, program)
    assert _weights(folder / "audit") == _weights(audited)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("audit/*/run.json")}
    printed = run_program(folder, program)
    assert {path: path.stat().st_mtime_ns for path in folder.glob("audit/*/run.json")} == before
    assert printed.splitlines()[0] == first_line


def _weights(folder: Path) -> dict[str, bytes]:
    """The bits of every job."""
    return {path.name: (path / store.MODEL).read_bytes() for path in folder.iterdir() if path.is_dir()}
