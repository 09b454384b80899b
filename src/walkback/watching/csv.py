"""Write the measurements of a watch to a CSV file: `Watch(..., loggers=[CSV("watch.csv")])`."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors
from walkback.watching.scalars import ScalarLogger

HEADER = ("step", "name", "value")


class CSV(ScalarLogger):
    """Appends one line for each number, so that rows with other numbers fit into the same file, and a kill loses at
    most the last line. pandas makes columns of the names by `pivot_table(index="step", columns="name")`."""

    def __init__(self, path: str | Path, prefix: str = "walkback"):
        super().__init__(prefix)
        self._path = Path(path)
        first = ",".join(HEADER)
        with friendly_os_errors(self._path, "write"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+", newline="", encoding="utf-8") as file:
                file.seek(0)
                found = file.readline(len(first) + 2)
                if found and found.rstrip("\r\n") != first:
                    raise InputError(
                        f"{path} is not a file of this logger: its first line is not {first}. Name another."
                    )
                if not found:
                    csv.writer(file).writerow(HEADER)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        with (
            friendly_os_errors(self._path, "write"),
            self._path.open("a", newline="", encoding="utf-8") as file,
        ):
            csv.writer(file).writerows((step, name, value) for name, value in values.items())
