"""Show the measurements and detectors of a running training in the terminal.

example: walkback watch watch/
         walkback watch runs/dfa-... --once --json

RUN is a folder that `walkback.Watch` or one of its callbacks writes into, or a run of `walkback train`. Shows the last
measurements, their history, and when each detector first failed. Ends when the training ends. Exit codes: 0 the
training is complete, 2 it was interrupted or (with --once) is still running, 3 usage or input error.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from walkback.cli.run_names import run_path
from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, InputError
from walkback.judge.detector_alarms import is_watched

if TYPE_CHECKING:
    from rich.console import RenderableType

    from walkback.watching.follow import Follower, WatchState

BARS = "▁▂▃▄▅▆▇█"
WATCH_WIDTH = 32
MAX_INTERVAL = 86_400
_SHOWN = {
    "loss": "training loss",
    "train_acc": "training accuracy",
    "test_acc": "test accuracy",
    "eval_loss": "evaluation loss",
    "eval_acc": "evaluation accuracy",
    "growth": "growth (D1)",
    "grad_top": "|g_L| @128 (D2)",
    "direction": "drift (c)",
}
_BY_LAYER = {"hidden": "|h_l|", "grad": "|g_l| @128", "cosine": "cosine with the credit"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=run_path, metavar="RUN", help="folder of a watched training, or of a run")
    parser.add_argument("--once", action="store_true", help="show the present state and exit")
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="time between two updates")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each change")


def run(args: argparse.Namespace) -> int:
    from walkback.watching.follow import Follower

    if not 0 < args.interval <= MAX_INTERVAL:
        raise InputError(f"--interval is {args.interval:g}; expected a number of seconds, at most {MAX_INTERVAL}.")
    follower = Follower(args.run)
    state = follower.state()
    if args.once:
        _show(state, args.json)
    elif not args.json and sys.stdout.isatty():
        state = _live(follower, state, args.interval)
    else:
        state = _lines(follower, state, args.interval, args.json)
    return EXIT_DONE if state.is_complete else EXIT_UNFINISHED


def _live(follower: Follower, state: WatchState, interval: float) -> WatchState:
    """Show one table and update it every `interval` seconds until the training ends."""
    from rich.live import Live

    from walkback.cli.output import console

    with Live(_page(state), console=console(), auto_refresh=False) as live:
        while not state.is_over:
            time.sleep(interval)
            state = follower.state()
            live.update(_page(state), refresh=True)
    return state


def _lines(follower: Follower, state: WatchState, interval: float, as_json: bool) -> WatchState:
    """For a file or a pipe: print the state now and after each change."""
    _show(state, as_json)
    while not state.is_over:
        time.sleep(interval)
        before, state = state, follower.state()
        if state != before:
            _show(state, as_json)
    return state


def _show(state: WatchState, as_json: bool) -> None:
    if as_json:
        print(json.dumps(state.to_json(), allow_nan=False), flush=True)
        return
    from walkback.cli.output import console

    console().print(_page(state))
    sys.stdout.flush()


def _page(state: WatchState) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    last = state.rows[-1] if state.rows else {}
    table = Table(title=f"{state.title}: {_progress(state)}", title_justify="left", box=None)
    table.add_column("")
    table.add_column("last", justify="right")
    table.add_column("history")
    for name, label in _SHOWN.items():
        values = [row.get(name) for row in state.rows]
        if any(value is not None for value in values):
            table.add_row(label, _number(last.get(name)), sparkline(values))
    for name, label in _BY_LAYER.items():
        values = last.get(name) or []
        if values:
            ends = f"{_number(values[0])} to {_number(values[-1])}"
            table.add_row(f"{label}, l = 0..{len(values) - 1}", ends, sparkline(values))
    if any(isinstance(row.get("flags"), Mapping) or is_watched(row) for row in state.rows):
        detectors = [_detector_line(name, at, name in state.raised, state.unit) for name, at in state.first.items()]
    else:
        detectors = [f"{', '.join(state.first)}: not measured (train with --watch to measure them)"]
    lines = [Text(line) for line in (*detectors, last.get("problem", ""), state.message) if line]
    return Group(table, *lines)


def _progress(state: WatchState) -> str:
    if not state.rows:
        return f"{state.status}, nothing measured yet"
    return f"{state.status}, {state.unit} {state.rows[-1].get(state.unit)}"


def _detector_line(name: str, at: int | None, fails: bool, unit: str) -> str:
    if at is None:
        return f"{name}: passes"
    return f"{name}: fails, first at {unit} {at}" if fails else f"{name}: passes, failed first at {unit} {at}"


def sparkline(values: Sequence[Any]) -> str:
    """Numbers as at most 32 bars; on a logarithmic scale where they span more than two orders of magnitude."""
    values = _thinned(values)
    known = [value for value in values if value is not None]
    if not known:
        return ""
    is_log = min(known) > 0 and max(known) / min(known) > 100
    heights = [None if value is None else math.log(value) if is_log else value for value in values]
    low, high = (limit(height for height in heights if height is not None) for limit in (min, max))
    # Halved, so that the span of any two numbers is a number.
    span = (high / 2 - low / 2) or 1.0
    return "".join(" " if h is None else BARS[round((h / 2 - low / 2) / span * (len(BARS) - 1))] for h in heights)


def _thinned(values: Sequence[Any]) -> list[Any]:
    """At most 32 of the values, evenly spaced, with the first and the last."""
    if len(values) <= WATCH_WIDTH:
        return list(values)
    return [values[round(index * (len(values) - 1) / (WATCH_WIDTH - 1))] for index in range(WATCH_WIDTH)]


def _number(value: Any) -> str:
    return "not measured" if value is None else f"{value:.4g}"
