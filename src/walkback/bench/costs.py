"""The cost of every rule in steps of backprop, read from a file that `walkback bench rules --package` writes.

This module does not import torch, because `walkback ls` uses it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from walkback.bench.result import BenchResult
from walkback.core.files import write_atomic
from walkback.core.reading.json_text import read_json
from walkback.core.reading.regular_files import fault_of

FILE = Path(__file__).with_name("rule_costs.json")
"""A list with one result of the bench `rules` per kind of device, in the format of `walkback bench rules --out`."""
NOT_PACKAGED = ("started", "load")
"""Keys that are left out of the package, because they hold for one run only."""


def packaged() -> list[dict[str, Any]]:
    """The results that are stored in the package; empty without the file."""
    if not FILE.exists():
        return []
    found: list[dict[str, Any]] = read_json(FILE, fault_of(FILE, "Install walkback again."), follow=True)
    return found


def package(document: Mapping[str, Any]) -> None:
    """Store a result in the package; it replaces the one from the same kind of device."""
    kept = {name: value for name, value in document.items() if name not in NOT_PACKAGED}
    others = [other for other in packaged() if device_kind(other) != device_kind(document)]
    write_atomic(
        FILE, (json.dumps(sorted([*others, kept], key=device_kind), indent=1, allow_nan=False) + "\n").encode()
    )


def device_kind(document: Mapping[str, Any]) -> str:
    """`cpu` or `cuda`, the device that a result was measured on."""
    return str(document["device"]).partition(":")[0]


def bp_steps(rule: str) -> dict[str, dict[str, float]]:
    """A rule's median cost by device, then by `alone` or fleet size `M=...`; empty for a rule that was not timed."""
    found: dict[str, dict[str, float]] = {}
    for document in packaged():
        for row in BenchResult.from_json(document).rows:
            name, _, where = row.what.rpartition(", ")
            if name == rule and row.ratio is not None:
                found.setdefault(document["device"], {})[where] = row.ratio.median
    return found
