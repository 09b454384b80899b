"""CIFAR-10 and CIFAR-100, read from any of their usual file formats into the same arrays.

Known formats: the official python batches and binary files, PNG sheets (one row of 1,024 pixels is one image), a
.tar.gz or .tgz of any of these, and walkback's own store of four .npy files. Paths inside archives are never followed,
and every array is checked against a known sha256.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors
from walkback.core.reading.archives import read_tar
from walkback.core.reading.regular_files import Fault, fault_of, read_bytes
from walkback.data.cifar_spec import CIFAR_ARRAYS, SOURCE_FILE, CifarArrays, CifarSpec
from walkback.data.layouts import LAYOUTS, Files, describe_missing, find_layout


class NotFoundError(InputError):
    """No copy of the data set is in the places that were searched."""


def load_cifar(spec: CifarSpec, root: Path) -> CifarArrays:
    """Find the data set in `root`, in any known format, and return its arrays with all hashes checked."""
    place = locate_cifar(spec, root)
    arrays = read(spec, place)
    verify_cifar(arrays, spec, place)
    return arrays


def locate_cifar(spec: CifarSpec, root: Path) -> Path:
    """The first folder or archive in `root` that holds the data set; its files are not read."""
    store = root / spec.name
    archives = [spec.archive_name, spec.binary_archive]
    if spec.npm_package:
        archives.append(f"{spec.npm_package}-{spec.npm_version}.tgz")
    searched = []
    with friendly_os_errors(root, "use"):
        if (store / SOURCE_FILE).is_file():
            return store  # Even when damaged: better an error than silently using another copy.
        for folder in (store, root / spec.python_folder, root / spec.binary_folder, root):
            missing = missing_files(spec, folder)
            if not missing:
                return folder
            searched.append(f"'{folder}' ({missing if folder.is_dir() else 'no such folder'})")
        for archive in archives:
            if (root / archive).is_file():
                return root / archive
            searched.append(f"'{root / archive}' (no such file)")
    raise NotFoundError(
        f"{spec.name} was not found. Looked in: {'; '.join(searched)}. Get it with `walkback data get {spec.name}`, "
        f"or from a copy you have with `walkback data get {spec.name} --from PATH`."
    )


def missing_files(spec: CifarSpec, folder: Path) -> str:
    """A phrase that names the files missing in `folder` for a copy of `spec`; empty when it is complete."""
    return describe_missing(spec, _file_names(folder))


def read(spec: CifarSpec, place: Path) -> CifarArrays:
    """Read a folder or archive of any known format; call `verify_cifar` before using the contents."""
    with friendly_os_errors(place, "use"):
        if place.is_dir():
            layout = find_layout(spec, _file_names(place), place)
            files = Files(
                place,
                {
                    name: read_bytes(place / name, _fault(spec, place / name), limit=spec.size_limit, follow=True)
                    for name in layout.names(spec)
                },
            )
        elif place.is_file():
            wanted = {name for layout in LAYOUTS for name in layout.names(spec)}
            files = Files(place, read_tar(place, wanted, spec.size_limit, _fault(spec, place)))
            layout = find_layout(spec, files.contents, place)
        else:
            raise InputError(f"'{place}' does not exist. Give a folder or a .tar.gz archive of {spec.name}.")
    return layout.decode(spec, files)


def digests(arrays: CifarArrays) -> dict[str, str]:
    """sha256 of each array's raw bytes."""
    return {
        name: hashlib.sha256(np.ascontiguousarray(getattr(arrays, name)).reshape(-1).data).hexdigest()
        for name in CIFAR_ARRAYS
    }


def verify_cifar(arrays: CifarArrays, spec: CifarSpec, place: Path | None = None) -> None:
    """Raise InputError unless the arrays are exactly those of `spec`; the message names `place`."""
    origin = f" from '{place}'" if place else ""
    remedy = f"Get a fresh copy with `walkback data get {spec.name} --force`."
    for name in CIFAR_ARRAYS:
        array = getattr(arrays, name)
        size = spec.train_size if name.startswith("train") else spec.test_size
        shape = (size, 32, 32, 3) if name.endswith("pixels") else (size,)
        if array.shape != shape or array.dtype != np.uint8:
            raise InputError(
                f"{spec.name} {name}{origin} has shape {array.shape} and type {array.dtype}, "
                f"expected {shape} and uint8. {remedy}"
            )
        if name.endswith("labels") and int(array.max()) >= spec.classes:
            raise InputError(
                f"{spec.name} {name}{origin} holds the label {array.max()}, expected 0 to {spec.classes - 1}. {remedy}"
            )
    for name, got in digests(arrays).items():
        if got != spec.hashes[name]:
            raise InputError(
                f"{spec.name} {name}{origin} has sha256 {got}, expected {spec.hashes[name]}: it is damaged or another "
                f"data set. {remedy}"
            )


def _file_names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir() if path.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _fault(spec: CifarSpec, path: Path) -> Fault:
    return fault_of(f"'{path}'", f"Get a fresh copy with `walkback data get {spec.name} --force`.")
