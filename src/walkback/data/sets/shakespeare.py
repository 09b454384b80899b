"""Plays of Shakespeare, character by character: the file of "tiny shakespeare", put into the data folder by you.

Size: 65 characters; 15,443 training and 1,717 test windows of 64 by default
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from walkback.core.errors import InputError
from walkback.core.reading.regular_files import fault_of, read_bytes
from walkback.core.settings import require_at_least
from walkback.data.cifar import NotFoundError
from walkback.data.dataset import CatalogSource, Dataset, digest
from walkback.data.tokens import token_windows
from walkback.data.where import data_root

CHARACTERS, VOCABULARY = 1_115_394, 65
TEXT_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
PLACES = ("shakespeare/input.txt", "input.txt")
"""Where the file is looked for in the data folder."""
TRAIN_SHARE = 0.9


@dataclass(frozen=True)
class Shakespeare(CatalogSource):
    """Windows of `length` characters and the next one, which do not overlap: the first 90% of the text for training,
    the rest for testing."""

    length: int = 64

    def __post_init__(self) -> None:
        require_at_least(self.length, 2, "length of shakespeare")
        if self.length > 4096:
            raise InputError(f"length of shakespeare is {self.length}; expected at most 4096.")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def classes(self) -> int:
        return VOCABULARY

    @property
    def _train_characters(self) -> int:
        return int(TRAIN_SHARE * CHARACTERS)

    @property
    def train_size(self) -> int:
        return self._train_characters // (self.length + 1)

    @property
    def per_token(self) -> bool:
        return True

    def samples(self, root: Path | None) -> Dataset:
        text = np.frombuffer(_read(root), dtype=np.uint8)
        known = np.unique(text)
        tokens = torch.from_numpy(np.searchsorted(known, text))
        parts = tokens[: self._train_characters], tokens[self._train_characters :]
        width = self.length + 1
        windows = [part[: len(part) // width * width].reshape(-1, width) for part in parts]
        (train_x, train_y), (test_x, test_y) = map(token_windows, windows)
        sha256 = digest(train_x, train_y, test_x, test_y)
        return Dataset(train_x, train_y, test_x, test_y, VOCABULARY, digest=sha256)


def _read(root: Path | None) -> bytes:
    """The text; refused if it is not the known file."""
    given = data_root(root)
    paths = [given] if given.is_file() else [given / place for place in PLACES]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise NotFoundError(
            f"There is no {PLACES[0]} in '{given}'. Download the file input.txt of tiny shakespeare (char-rnn, "
            f"{CHARACTERS:,} characters) there, or give its folder with --data-root."
        )
    data = read_bytes(path, fault_of(f"'{path}'", "Download it again."), follow=True)
    found = hashlib.sha256(data).hexdigest()
    if found != TEXT_SHA256:
        raise InputError(
            f"'{path}' has {len(data):,} bytes and sha256 {found[:12]}…; expected {CHARACTERS:,} and "
            f"{TEXT_SHA256[:12]}…: it is another text, or damaged. Download it again."
        )
    return data


DATA_SET = Shakespeare
