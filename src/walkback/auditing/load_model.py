"""Load what the command line names: a model (`package.module:build`), its checkpoint, and evaluation batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from walkback.auditing.measure_run import EVALUATION_SAMPLES
from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors
from walkback.core.load_named import load_named
from walkback.core.measurements import GROUP
from walkback.core.settings import Spec, build_settings
from walkback.data.catalog import DATA_SETS
from walkback.data.dataset import DataSource
from walkback.data.feed import TestSet

NESTED = ("state_dict", "model_state_dict", "model", "module")
"""Keys under which training scripts keep a model's weights in a larger checkpoint."""


def load_model(text: str, checkpoint: Path | None, device: torch.device) -> nn.Module:
    """The model that `package.module:build` builds, with the checkpoint's weights."""
    made = load_named(text, "--model")()
    if not isinstance(made, nn.Module):
        raise InputError(f"--model: {text}() returned a {type(made).__name__}; expected a torch.nn.Module.")
    if checkpoint is not None:
        _load(made, _weights(checkpoint), checkpoint)
    return made.to(device)


def load_batches(text: str, data_root: Path | None, device: torch.device) -> Iterable[Any]:
    """Evaluation batches: the first test samples of a known data set, or what `package.module:batches` yields."""
    if ":" in text and Spec.parse(text.partition(":")[0]).name not in DATA_SETS.names():
        made: Iterable[Any] = load_named(text, "--data")()
        return made
    spec = Spec.parse(text)
    source: DataSource = build_settings(DATA_SETS.get(spec.name), spec.settings, f"the data set '{spec.name}'")
    return TestSet(source.load(data_root), torch.float32, device, batch=GROUP).batches()[: EVALUATION_SAMPLES // GROUP]


def _weights(path: Path) -> dict[str, Any]:
    with friendly_os_errors(path, "read"):
        start = path.read_bytes()[:16]
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        # weights_only: a checkpoint from somebody else must not run code.
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch and safetensors raise many kinds here; all mean the same to a user.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"--checkpoint {path} cannot be read as weights ({reason}; it begins with {start[:4]!r}). Save it with "
            "torch.save(model.state_dict(), file) or as safetensors."
        ) from error
    for key in NESTED:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise InputError(f"--checkpoint {path} holds no state dict of tensors. Save model.state_dict() on its own.")
    return {name.removeprefix("module.").removeprefix("_orig_mod."): value for name, value in found.items()}


def _load(made: nn.Module, weights: dict[str, Any], path: Path) -> None:
    own = made.state_dict()
    missing, extra = sorted(own.keys() - weights.keys()), sorted(weights.keys() - own.keys())
    shapes = [name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape]
    for found, what in (
        (missing, "lacks"),
        (extra, "has, and the model lacks,"),
        (sorted(shapes), "has in another shape"),
    ):
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise InputError(f"--checkpoint {path} {what} '{found[0]}'{more}. Build the model it was saved from.")
    made.load_state_dict(weights)
