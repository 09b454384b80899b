"""Write the measurements of a watch to TensorBoard: `Watch(..., loggers=[TensorBoard(writer)])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from walkback.watching.scalars import ScalarLogger, import_extra


class Writer(Protocol):
    """A SummaryWriter, or any object with its `add_scalar`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


class TensorBoard(ScalarLogger):
    """Writes to a SummaryWriter; a path makes one that writes into that folder."""

    def __init__(self, writer: Writer | str | Path, prefix: str = "walkback"):
        super().__init__(prefix)
        self._writer: Writer = _open_writer(writer) if isinstance(writer, str | Path) else writer

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)


def _open_writer(folder: str | Path) -> Writer:
    module = import_extra("torch.utils.tensorboard", "tensorboard", "a writer that has add_scalar")
    writer: Writer = module.SummaryWriter(str(folder))
    return writer
