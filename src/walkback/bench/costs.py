"""What every rule costs in steps of backprop: read from a file that `walkback bench rules --package` writes.

Listings read it, so nothing here needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from walkback.bench.result import BenchResult
from walkback.core.files import write_atomic

FILE = Path(__file__).with_name("rule_costs.json")
"""One result of the bench `rules` for each kind of device, in a list, as `walkback bench rules --out` writes one."""
PASSING = ("started", "load")
"""What is true of one afternoon only is not packaged."""


def packaged() -> list[dict[str, Any]]:
    """The results in the package."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    return found


def package(document: Mapping[str, Any]) -> None:
    """Put a result into the package, in the place of the one from the same kind of device."""
    kept = {name: value for name, value in document.items() if name not in PASSING}
    others = [other for other in packaged() if kind(other) != kind(document)]
    write_atomic(FILE, (json.dumps(sorted([*others, kept], key=kind), indent=1, allow_nan=False) + "\n").encode())


def kind(document: Mapping[str, Any]) -> str:
    """`cpu` or `cuda`."""
    return str(document["device"]).partition(":")[0]


def bp_steps(rule: str) -> dict[str, dict[str, float]]:
    """A rule's median cost: for each device, alone and in a fleet; empty for a rule that the package has not timed."""
    found: dict[str, dict[str, float]] = {}
    for document in packaged():
        for row in BenchResult.from_json(document).rows:
            name, _, where = row.what.rpartition(", ")
            if name == rule and row.ratio is not None:
                found.setdefault(document["device"], {})[where] = row.ratio.median
    return found
