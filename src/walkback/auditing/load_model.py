"""Load what the command line names: a model (`package.module:build`), its checkpoint, and evaluation batches."""

from __future__ import annotations

import io
import pickle
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from walkback.auditing.measure_run import EVALUATION_SAMPLES
from walkback.core.errors import InputError
from walkback.core.load_named import call_named, user_items
from walkback.core.measurements import GROUP
from walkback.core.reading.array_files import NUMPY_TYPES, StoredTensor, as_arrays, read_arrays_file, read_tensors
from walkback.core.reading.regular_files import Fault, fault_of
from walkback.core.settings import Spec, build_settings
from walkback.data.catalog import DATA_SETS
from walkback.data.dataset import DataSource
from walkback.data.feed import TestSet

NESTED = ("state_dict", "model_state_dict", "model", "module")
"""Keys under which training scripts keep a model's weights in a larger checkpoint."""


def load_model(text: str, checkpoint: Path | None, device: torch.device) -> nn.Module:
    """The model that `package.module:build` builds, with the checkpoint's weights."""
    made = call_named(text, "--model")
    if not isinstance(made, nn.Module):
        raise InputError(f"--model: {text}() returned a {type(made).__name__}; expected a torch.nn.Module.")
    if checkpoint is not None:
        _load(made, _weights(checkpoint), checkpoint)
    return made.to(device)


def load_batches(text: str, data_root: Path | None, device: torch.device) -> Iterable[Any]:
    """Evaluation batches: the first test samples of a known data set, or what `package.module:batches` yields."""
    if ":" in text and Spec.parse(text.partition(":")[0]).name not in DATA_SETS.names():
        made = call_named(text, "--data")
        if not isinstance(made, Iterable):
            raise InputError(f"--data: {text}() returned a {type(made).__name__}; expected (x, y) batches.")
        return user_items(made, text, "--data")
    spec = Spec.parse(text)
    source: DataSource = build_settings(DATA_SETS.get(spec.name), spec.settings, f"the data set '{spec.name}'")
    return TestSet(source.load(data_root), torch.float32, device, batch=GROUP).batches()[: EVALUATION_SAMPLES // GROUP]


def _weights(path: Path) -> dict[str, Any]:
    # The user names it, so it may be a link, as in the cache of a model hub.
    fault = fault_of(
        f"--checkpoint {path}", "Save it with torch.save(model.state_dict(), file) or as safetensors, or name another."
    )
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path, fault, follow=True)
        return {name: _tensor(found, name, fault) for name, found in tensors.items()}
    data = read_arrays_file(path, fault, follow=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They say how to load a file of another format unsafely.
            # weights_only: a checkpoint from somebody else must not run code.
            found = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)  # noqa: TID251
    except pickle.UnpicklingError as error:
        # torch's own text explains how to load such a file unsafely.
        if "GLOBAL" not in str(error):
            raise fault(f"cannot be read as weights (it begins with {data[:4]!r})") from error
        raise fault("holds more than tensors, and what it holds could run code: it was not loaded") from error
    except Exception as error:  # torch raises many kinds here; all mean the same to a user.
        raise fault(f"cannot be read as weights ({type(error).__name__}; it begins with {data[:4]!r})") from error
    for key in NESTED:
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise InputError(f"--checkpoint {path} holds no state dict of tensors. Save model.state_dict() on its own.")
    if not all(isinstance(name, str) for name in found):
        raise InputError(f"--checkpoint {path} has names that are no text. Save model.state_dict() on its own.")
    return {name.removeprefix("module.").removeprefix("_orig_mod."): value for name, value in found.items()}


def _tensor(stored: StoredTensor, name: str, fault: Fault) -> torch.Tensor:
    if stored.dtype in NUMPY_TYPES:
        return torch.from_numpy(as_arrays({name: stored}, fault)[name])
    # Copied: the file's bytes cannot be written to.
    flat = torch.frombuffer(bytearray(stored.data), dtype=_OTHER_TYPES[stored.dtype]) if stored.data else torch.empty(0)
    return flat.to(_OTHER_TYPES[stored.dtype]).reshape(stored.shape)


_OTHER_TYPES = {"BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}


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
