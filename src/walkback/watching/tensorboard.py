"""Write the measurements of a watch to TensorBoard: `Watch(..., loggers=[TensorBoard(writer)])`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from walkback.core.errors import InputError

SCALARS = ("growth", "grad_top", "direction", "eval_loss", "eval_acc")
_BY_LAYER = ("hidden", "grad", "cosine")


class Writer(Protocol):
    """A SummaryWriter, or any object with its `add_scalar`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


class TensorBoard:
    """A logger that writes each row as scalars; values that could not be measured are left out."""

    def __init__(self, writer: Writer | str | Path, prefix: str = "walkback"):
        self._writer = _open_writer(writer) if isinstance(writer, str | Path) else writer
        self._prefix = prefix

    def __call__(self, row: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {name: row.get(name) for name in SCALARS}
        for name in _BY_LAYER:
            values |= {f"{name}/{layer}": value for layer, value in enumerate(row.get(name) or ())}
        flags = row.get("flags") or {}
        values |= {f"raised/{name}": float(status == "raised") for name, status in flags.items()}
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(f"{self._prefix}/{name}", value, row["step"])


def _open_writer(folder: str | Path) -> Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            f"TensorBoard is not installed ({error}). Install it with pip install 'walkback[tensorboard]', "
            "or pass a writer that has add_scalar."
        ) from error
    writer: Writer = SummaryWriter(str(folder))
    return writer
