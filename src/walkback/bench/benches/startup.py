"""Time of `walkback --help` and `import walkback` against that of starting Python, each in a process of its own.

Bars: 200 ms for `walkback --help`
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import torch

from walkback.bench.result import BenchOptions, BenchResult, BenchRow, BenchTarget
from walkback.bench.timing import interleaved

PYTHON, IMPORT, HELP = "python -c pass", "import walkback", "walkback --help"
_ARGUMENTS = {PYTHON: ("-c", "pass"), IMPORT: ("-c", "import walkback"), HELP: ("-m", "walkback", "--help")}
IMPORTS_TORCH = "import sys; from walkback.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"


def run(options: BenchOptions) -> BenchResult:
    repeats = options.rounds(15)
    tasks = {name: partial(_python, *words) for name, words in _ARGUMENTS.items()}
    seconds = interleaved(tasks, repeats, torch.device("cpu"), options.on_task)
    rows = []
    for name, values in seconds.items():
        ratios = [value / base for value, base in zip(values, seconds[PYTHON], strict=True)]
        rows.append(BenchRow.of(name, values, ratios, [BenchTarget("ms", most=200.0)] if name == HELP else []))
    imports_torch = (
        subprocess.run([sys.executable, "-c", IMPORTS_TORCH], capture_output=True, check=False).returncode != 0
    )
    note = f"`walkback --help` imports {'torch, and must not' if imports_torch else 'no torch'}."
    settings = {"help_imports_torch": imports_torch}
    return BenchResult("startup", "ms", "x starting Python", repeats, tuple(rows), settings, (note,))


def _python(*words: str) -> None:
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
