"""What a run's record, the rows of its log and the facts of its checkpoints must have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from walkback.core.reading.regular_files import Fault
from walkback.core.reading.schema import Schema, check_schema


def check_form(record: Mapping[str, Any], fault: Fault) -> None:
    """Refuse a record that lacks a key, or has another kind of value there."""
    check_schema(record, _RECORD, fault)
    if record["status"] == "done":
        result = record.get("result")
        is_loss = isinstance(result, dict) and "test_loss" in result and "test_acc" not in result
        check_schema(record, _RECORD_OF_LOSS if is_loss else _RECORD_WHEN_DONE, fault)


def _with_result(result: Schema) -> Schema:
    keys = {
        "result": {**result, "type": "object"},
        "timings": {"type": "object", "required": ["seconds"], "properties": {"seconds": _SECONDS, "places": _COUNT}},
        "files": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    return {"type": "object", "required": list(keys), "properties": keys}


_SECONDS = {"type": "number", "minimum": 0}
_COUNT = {"type": "integer", "minimum": 1}
_EPOCHS = {"type": "integer", "minimum": 0}
_RECORD: Schema = {
    "type": "object",
    "required": ["run", "method", "seed", "status", "config", "digest", "rule_has_state", "data", "versions"],
    "properties": {
        "run": {"type": "string"},
        "method": {"type": "string"},
        "seed": {"type": "integer", "minimum": 0},
        "status": {"enum": ["running", "done"]},
        "config": {"type": "object"},
        "digest": {"type": "string"},
        "rule_has_state": {"type": "boolean"},
        "data": {"type": "object"},
        "versions": {"type": "object"},
        "device": {"type": "string"},
        "command": {"type": "string"},
    },
}
_RECORD_WHEN_DONE = _with_result(
    {
        "required": ["test_acc", "epochs"],
        "properties": {"test_acc": {"type": "number", "minimum": 0, "maximum": 1}, "epochs": _EPOCHS},
    }
)
_RECORD_OF_LOSS = _with_result(
    {"required": ["test_loss", "epochs"], "properties": {"test_loss": {"type": "number"}, "epochs": _EPOCHS}}
)
"""The same for a model that is no classifier."""
LOG_ROW: Schema = {"required": ["epoch"], "properties": {"epoch": {"type": "integer", "minimum": 1, "maximum": 10**9}}}
CHECKPOINT_FACTS = {
    "epoch": r"\d{1,15}",
    "log_bytes": r"\d{1,15}",
    "fleet": r"\[.*\]",
    "seconds": r"\d{1,20}(\.\d+)?(e[+-]?\d{1,2})?",
}
"""What a checkpoint's metadata must have, and its form."""
