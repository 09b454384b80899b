"""Tiny CIFAR data sets of random pixels, in all file formats of the real ones."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

from walkback.data.cifar import digests
from walkback.data.cifar_spec import CIFAR10, CIFAR100, CIFAR_ARRAYS, CIFAR_BATCHES, CifarArrays, CifarSpec

TRAIN, TEST = 50, 10


def fake(real: CifarSpec = CIFAR10, seed: int = 0) -> tuple[CifarSpec, CifarArrays]:
    """A small random data set with the names of `real`, and a spec with its hashes."""
    rng = np.random.default_rng(seed)
    arrays = CifarArrays(
        train_pixels=rng.integers(0, 256, (TRAIN, 32, 32, 3), dtype=np.uint8),
        train_labels=rng.integers(0, real.classes, TRAIN, dtype=np.uint8),
        test_pixels=rng.integers(0, 256, (TEST, 32, 32, 3), dtype=np.uint8),
        test_labels=rng.integers(0, real.classes, TEST, dtype=np.uint8),
    )
    return dataclasses.replace(real, hashes=digests(arrays), train_size=TRAIN, test_size=TEST), arrays


def both() -> list[tuple[CifarSpec, CifarArrays]]:
    return [fake(CIFAR10), fake(CIFAR100)]


def same(one: CifarArrays, other: CifarArrays) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in CIFAR_ARRAYS)


def _parts(spec: CifarSpec, arrays: CifarArrays) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(file name, rows of colour planes, labels) of each official file."""
    count = len(spec.train_files)
    pixels = [*np.split(arrays.train_pixels, count), arrays.test_pixels]
    labels = [*np.split(arrays.train_labels, count), arrays.test_labels]
    planes = [np.ascontiguousarray(part.transpose(0, 3, 1, 2)).reshape(len(part), -1) for part in pixels]
    return list(zip((*spec.train_files, spec.test_file), planes, labels, strict=True))


def python_files(spec: CifarSpec, arrays: CifarArrays) -> dict[str, bytes]:
    files = {"batches.meta": b"never read"}
    for name, planes, labels in _parts(spec, arrays):
        batch = {"batch_label": name, "data": planes, spec.label_key: labels.tolist(), "coarse_labels": [0]}
        # Protocol 2 under the module name that the official files were written with.
        files[name] = pickle.dumps(batch, protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    return files


def binary_files(spec: CifarSpec, arrays: CifarArrays) -> dict[str, bytes]:
    files = {}
    for name, planes, labels in _parts(spec, arrays):
        coarse = np.full((len(labels), spec.label_bytes - 1), 7, dtype=np.uint8)
        files[f"{name}.bin"] = np.hstack([coarse, labels[:, None], planes]).tobytes()
    return files


def png(rows: np.ndarray, mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(rows.reshape(len(rows), 1024, 3)).convert(mode).save(buffer, "PNG")
    return buffer.getvalue()


def sheet_files(spec: CifarSpec, arrays: CifarArrays, spelling: str = "labels") -> dict[str, bytes]:
    sheets = zip(CIFAR_BATCHES, np.split(arrays.train_pixels, len(CIFAR_BATCHES)), strict=True)
    return {
        **{f"{name}.png": png(rows) for name, rows in sheets},
        "test_batch.png": png(arrays.test_pixels),
        f"train_{spelling}.json": json.dumps(arrays.train_labels.tolist()).encode(),
        f"test_{spelling}.json": json.dumps(arrays.test_labels.tolist()).encode(),
    }


def store_files(spec: CifarSpec, arrays: CifarArrays) -> dict[str, bytes]:
    files = {}
    for name in CIFAR_ARRAYS:
        buffer = io.BytesIO()
        np.save(buffer, getattr(arrays, name))
        files[f"{name}.npy"] = buffer.getvalue()
    return files


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, contents in files.items():
        (folder / name).write_bytes(contents)
    return folder


def write_archive(path: Path, files: dict[str, bytes], prefix: str, extra: list[tarfile.TarInfo] | None = None) -> Path:
    """A .tar.gz of `files` below `prefix`, with `extra` members (links, sparse files, ...) in front."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for member in extra or []:
            archive.addfile(member, io.BytesIO(bytes(member.size)))
        for name, contents in files.items():
            member = tarfile.TarInfo(f"{prefix}{name}")
            member.size = len(contents)
            archive.addfile(member, io.BytesIO(contents))
    return path


def official_archive(spec: CifarSpec, arrays: CifarArrays, path: Path) -> CifarSpec:
    """Write the official python archive, and return the spec with its md5."""
    write_archive(path, python_files(spec, arrays), f"{spec.python_folder}/")
    return dataclasses.replace(spec, archive_md5=hashlib.md5(path.read_bytes()).hexdigest())
