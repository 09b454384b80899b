"""What a campaign damages: a finished and measured run, an unfinished one, a journal and a grid."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from walkback.api import train
from walkback.cli.main import main
from walkback.core.errors import EXIT_DONE, EXIT_INPUT
from walkback.runs.store import LOG, MODEL, RECORD, RESUME, RULE
from walkback.runs.train_runs import ProgressListener
from walkback.watching.journal import WATCH_LOG, WATCH_RECORD

_ARCH, _DATA = "resmlp:d=4,depth=2", "prototypes:train=64,test=1024,dim=4"
_METHOD = "local"  # Its state is learned, so that its files have every part.
GRID_NAME = "grid.yaml"


@dataclass(frozen=True)
class Specimen:
    """A folder, the commands that read it, and which of its files each of them must refuse when they are changed."""

    folder: Path
    commands: tuple[tuple[str, ...], ...]
    """Words in which {run} is the folder of the run, {out} the folder of runs."""
    checked: dict[str, tuple[str, ...]]
    """By a command's first word, the files that must be as they were written."""

    def files(self) -> list[Path]:
        """The files to damage, relative to the folder."""
        return sorted(path.relative_to(self.folder) for path in self.folder.rglob("*") if path.is_file())


class _StopAfter(ProgressListener):
    def __init__(self, steps: int):
        self.left = steps

    def stepped(self, steps: int) -> None:
        self.left -= steps
        if self.left <= 0:
            raise KeyboardInterrupt


def make_specimens(folder: Path) -> list[Specimen]:
    """Train and measure what is damaged; a few seconds."""
    return [_finished(folder / "finished"), _unfinished(folder / "unfinished"), _journal(folder), _grid(folder)]


def _finished(folder: Path) -> Specimen:
    _train(folder / "runs", epochs=2)
    run_command(["diagnose", str(folder / "runs"), "--device", "cpu"])
    return Specimen(
        folder,
        (
            ("ls", "runs", "{out}"),
            ("watch", "{run}", "--once"),
            ("render", "{run}"),
            ("checklist", "{run}"),
            ("diagnose", "{run}", "--device", "cpu"),
            ("verify", "{run}/report.json", "{run}", "--device", "cpu"),
        ),
        {
            "watch": (RECORD, LOG),
            "render": ("report.json",),
            "checklist": ("report.json",),
            "diagnose": (RECORD, MODEL, RULE),
            "verify": (RECORD, MODEL, RULE, "report.json"),
        },
    )


def _unfinished(folder: Path) -> Specimen:
    with suppress(KeyboardInterrupt):
        _train(folder / "runs", epochs=3, listener=_StopAfter(5))
    words = (
        "--arch",
        _ARCH,
        "--data",
        _DATA,
        "--set",
        "batch=32",
        "--seeds",
        "1",
        "--epochs",
        "3",
        "--driver",
        "single",
    )
    return Specimen(
        folder,
        (
            ("ls", "runs", "{out}"),
            ("watch", "{run}", "--once"),
            ("train", "--method", _METHOD, *words, "--device", "cpu", "--quiet", "--resume", "--out", "{out}"),
        ),
        {"watch": (RECORD,), "train": (RECORD, RESUME)},
    )


def _train(out: Path, epochs: int, listener: ProgressListener | None = None) -> None:
    train(
        _METHOD, arch=_ARCH, data=_DATA, seeds=[1], epochs=epochs, batch=32, driver="single", device="cpu", out=out,
        checkpoint_seconds=0, listener=listener,
    )  # fmt: skip


def _journal(folder: Path) -> Specimen:
    place = folder / "journal"
    place.mkdir(parents=True)
    record = {"format": 1, "status": "done", "thresholds": {}, "method": "mine", "reason": "finished", "every": 2}
    rows = [
        {"step": n, "growth": 1.5, "grad_top": 1e-3, "hidden": [1.0, 2.0], "flags": {"D1": "clear"}} for n in range(9)
    ]
    (place / WATCH_RECORD).write_text(json.dumps(record))
    (place / WATCH_LOG).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Specimen(place, (("watch", "{folder}", "--once"), ("watch", "{folder}", "--once", "--json")), {})


def _grid(folder: Path) -> Specimen:
    place = folder / "grid"
    place.mkdir(parents=True)
    text = (
        f"methods: [bp, dfa]\narch: '{_ARCH}'\ndata: '{_DATA}'\nseeds: [1, 2]\nepochs: 1\nsettings: {{lr: [0.1, 0.2]}}"
    )
    (place / GRID_NAME).write_text(text)
    return Specimen(place, (("sweep", "{folder}/" + GRID_NAME, "--dry-run", "--out", "{folder}/out"),), {})


def words_for(command: Sequence[str], folder: Path) -> list[str]:
    """The words of a command for a copy of its specimen."""
    out = folder / "runs"
    names = {"{folder}": str(folder), "{out}": str(out)}
    if any("{run}" in word for word in command):
        # Found by its folder, since its record may be what is damaged.
        names["{run}"] = str(next(path for path in sorted(out.iterdir()) if path.is_dir()))
    found = []
    for word in command:
        for name, value in names.items():
            word = word.replace(name, value)
        found.append(word)
    return found


def run_command(words: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and what it wrote to stderr."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main(words)
    return code, errors.getvalue()


def is_refused(code: int, command: str) -> bool:
    """Whether a command that must refuse a changed file has done so; for `verify` any answer but confirmed does."""
    return code != EXIT_DONE if command == "verify" else code == EXIT_INPUT
