"""Read arrays from npz, npy and safetensors files, as numpy arrays; nothing is allocated before its size is checked."""

from __future__ import annotations

import io
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from walkback.core.errors import InputError
from walkback.core.machine import memory_bytes
from walkback.core.reading.json_text import parse_json
from walkback.core.reading.regular_files import MIB, Fault, open_regular, read_bytes
from walkback.core.reading.schema import check_schema

StoredArray = NDArray[Any]

NPZ_BYTES = 512 * MIB
"""The most that the arrays of a file of measurements may have, unpacked."""
MAX_ARRAYS = 100_000
HEADER_BYTES = 16 * MIB
"""The most that the header of a safetensors file may have."""
NUMPY_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
"""The types of safetensors that numpy has."""
OTHER_TYPES = {"BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
"""Types that torch alone has, with their bytes."""

_NPY_HEADER = re.compile(
    rb"\{'descr': '([<>|=]?[biuf]\d{1,2})', 'fortran_order': (False|True), 'shape': \(((?:\d{1,18}, ?)*\d{0,18})\), \}"
)
_TENSOR = {
    "type": "object",
    "required": ["dtype", "shape", "data_offsets"],
    "properties": {
        "dtype": {"enum": [*NUMPY_TYPES, *OTHER_TYPES]},
        "shape": {"type": "array", "maxItems": 32, "items": {"type": "integer", "minimum": 0, "maximum": 2**48}},
        "data_offsets": {
            "type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer", "minimum": 0, "maximum": 2**60}
        },
    },
    "additionalProperties": False,
}  # fmt: skip
_METADATA = {"type": "object", "additionalProperties": {"type": "string"}}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a safetensors file; `data` are the bytes of its numbers."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


def read_npz(path: Path, fault: Fault) -> dict[str, StoredArray]:
    """The arrays of an npz file by name."""
    data = read_bytes(path, fault, limit=NPZ_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _members(archive, fault)
    except (zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, EOFError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise fault(f"cannot be read as npz ({reason})") from error
    except (RuntimeError, OSError, OverflowError, KeyError, IndexError, AttributeError, AssertionError) as error:
        # What damaged bytes raise inside zipfile beside its own errors.
        raise fault(f"cannot be read as npz ({type(error).__name__})") from error


def _members(archive: zipfile.ZipFile, fault: Fault) -> dict[str, StoredArray]:
    members = archive.infolist()
    total = sum(member.file_size for member in members)
    if total > NPZ_BYTES or len(members) > MAX_ARRAYS:
        raise fault(f"unpacks to {total:,} bytes in {len(members):,} arrays; expected at most {NPZ_BYTES:,} bytes")
    found: dict[str, StoredArray] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name in found:
            raise fault(f"has the array '{name}' twice")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise fault(f"has the array '{name}' in a compression that numpy does not write")
        found[name] = parse_npy(archive.read(member), partial(_of_array, name, fault))
    return found


def _of_array(name: str, fault: Fault, why: str) -> InputError:
    return fault(f"has an array '{name}' that {why}")


def parse_npy(data: bytes, fault: Fault) -> StoredArray:
    """The array of an npy file's bytes. Its header is matched, not evaluated, as numpy would."""
    if data[:6] != b"\x93NUMPY" or data[6:8] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00") or len(data) < 12:
        raise fault("is not a .npy file")
    width = 2 if data[6] == 1 else 4
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    header = _NPY_HEADER.fullmatch(data[8 + width : start].rstrip(b" \n")) if start <= 10_000 else None
    if header is None:
        raise fault("has no header of a plain array of numbers")
    dtype = _dtype(header[1].decode(), fault)
    shape = tuple(int(size) for size in header[3].split(b",") if size.strip())
    if math.prod(shape) * dtype.itemsize != len(data) - start or len(shape) > 32:
        raise fault(f"has {len(data) - start:,} bytes where {dtype}{list(shape)} needs another number")
    flat = np.frombuffer(data, dtype=dtype, offset=start).copy()
    if header[2] == b"True":
        return flat.reshape(shape[::-1]).transpose()
    return flat.reshape(shape)


def _dtype(text: str, fault: Fault) -> np.dtype[Any]:
    try:
        return np.dtype(text)
    except TypeError as error:
        raise fault(f"has the type '{text}', which is unknown") from error


def read_safetensors(path: Path, fault: Fault) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """The arrays and the metadata of a safetensors file."""
    tensors, metadata = read_tensors(path, fault)
    return as_arrays(tensors, fault), metadata


def parse_safetensors(data: bytes, fault: Fault) -> dict[str, StoredArray]:
    """The arrays of a safetensors file's bytes."""
    return as_arrays(_tensors(data, len(data), fault)[0], fault)


def read_tensors(path: Path, fault: Fault, *, follow: bool = False) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors of a safetensors file, of any type, and its metadata."""
    data = read_arrays_file(path, fault, follow=follow)
    return _tensors(data, len(data), fault)


def read_arrays_file(path: Path, fault: Fault, *, follow: bool = False) -> bytes:
    """The bytes of a file of arrays: at most a quarter of the memory, since its arrays are copied from them."""
    return read_bytes(path, fault, limit=memory_bytes() // 4, follow=follow)


def read_metadata(path: Path, fault: Fault) -> dict[str, str]:
    """The metadata of a safetensors file, whose arrays are not read."""
    with open_regular(path, fault) as file:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        start = file.read(8)
        length = int.from_bytes(start, "little")
        return _tensors(start + file.read(min(length, HEADER_BYTES)), size, fault)[1]


def as_arrays(tensors: Mapping[str, StoredTensor], fault: Fault) -> dict[str, StoredArray]:
    """Tensors as numpy arrays; types that numpy does not have are refused."""
    found: dict[str, StoredArray] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in NUMPY_TYPES:
            raise fault(f"has '{name}' in the type {tensor.dtype}, which no file of walkback's has")
        flat: StoredArray = np.frombuffer(tensor.data, dtype=NUMPY_TYPES[tensor.dtype])
        found[name] = flat.reshape(tensor.shape).copy()
    return found


def _tensors(data: bytes, size: int, fault: Fault) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors and the metadata of a file of `size` bytes that begins with `data`: its header, or all of it."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > HEADER_BYTES or 8 + length > size:
        raise fault("cannot be read as safetensors: it is cut off, or another kind of file")
    header = parse_json(data[8 : 8 + length], fault)
    check_schema(header, {"type": "object"}, fault)
    metadata = header.pop("__metadata__", {})
    check_schema(metadata, _METADATA, fault, "__metadata__")
    body, found, end = memoryview(data)[8 + length :], {}, 0
    if len(header) > MAX_ARRAYS:
        raise fault(f"has {len(header):,} tensors; expected at most {MAX_ARRAYS:,}")
    for entry in header.items():
        check_schema(entry[1], _TENSOR, fault, entry[0])
    for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        first, last = entry["data_offsets"]
        width = OTHER_TYPES.get(entry["dtype"]) or np.dtype(NUMPY_TYPES[entry["dtype"]]).itemsize
        if first != end or last - first != math.prod(entry["shape"]) * width:
            raise fault(f"has '{name}' at bytes that do not fit its shape {entry['shape']} and type {entry['dtype']}")
        found[name], end = StoredTensor(entry["dtype"], tuple(entry["shape"]), body[first:last]), last
    if 8 + length + end != size:
        raise fault(f"has {size:,} bytes; its header says {8 + length + end:,}")
    return {name: found[name] for name in header}, metadata
