"""What a study's jobs were planned to take and what they took: a file beside the runs, an entry for each command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from walkback.core.files import write_atomic
from walkback.studies.provenance import provenance, without_paths
from walkback.studies.run import Options, choose_device
from walkback.training.group import Group
from walkback.training.shares import Workers

TIMINGS = "timings.json"


def keep_timings(
    options: Options,
    groups: Sequence[Group],
    ended: Mapping[int, float],
    workers: Workers,
    planning: float,
    seconds: float,
) -> None:
    """`ended` has the seconds after which each job was done, where it was; `planning` went before them."""
    device = choose_device(options.device)
    entry = {
        **provenance(device, without_paths(options.command)),
        "processes": workers.count,
        "planned_seconds": workers.seconds(groups),
        "planning_seconds": planning,
        "seconds": seconds,
        "jobs": [
            {
                "label": group.label,
                "arch": str(group.recipes[0].config.arch),
                **group.costs,
                "ahead": group.ahead,
                "done_after": ended.get(job),
            }
            for job, group in enumerate(groups)
        ],
    }
    path = options.out / TIMINGS
    write_atomic(path, (json.dumps([*timings(options.out), entry], indent=1) + "\n").encode())


def timings(out: Path) -> list[dict[str, Any]]:
    """The entries so far."""
    with suppress(OSError, ValueError):
        found: list[dict[str, Any]] = json.loads((out / TIMINGS).read_text())
        return found
    return []
