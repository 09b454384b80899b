"""The stored tables of tuned learning rates: `tuning.json` beside the judged runs; read without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from walkback.core.content_hash import SHA256, document_hash, with_hash
from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, write_atomic
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import fault_of
from walkback.core.tuning import TuningTable

TUNING = "tuning.json"
TUNING_FORMAT = 1


def read_tables(folder: Path) -> dict[str, TuningTable]:
    """The stored tables of a folder by what their runs share, checked; empty where there are none."""
    path = folder / TUNING
    if not path.is_file():
        return {}
    fault = fault_of(
        f"The tuning table {path}",
        "Nothing was changed. Move it away; with --resume the same command makes it again from the tuning runs.",
    )
    document = read_object(path, lambda why: fault(f"is damaged: it {why}"))
    try:
        if document["format"] != TUNING_FORMAT:
            raise ValueError(f"it is of format {document['format']}, not {TUNING_FORMAT}")
        if document[SHA256] != document_hash(document):
            raise ValueError("it is not the file that was written (its sha256 differs)")
        tables = [TuningTable.from_json(each) for each in document["tables"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, InputError) as error:
        raise fault(f"is damaged: {error}") from error
    return {table.setting: table for table in tables}


def store_tables(folder: Path, tables: Mapping[str, TuningTable]) -> None:
    path = folder / TUNING
    document = with_hash({"format": TUNING_FORMAT, "tables": [tables[key].to_json() for key in sorted(tables)]})
    drop_leftovers(path)
    write_atomic(path, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())
