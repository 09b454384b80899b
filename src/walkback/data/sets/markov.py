"""Synthetic token task, no download: each token depends on the two before it together, so that depth is needed.

Size: 6,000 training and 2,000 test windows of 16 tokens by default, of a vocabulary of 12
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from walkback.core.random_streams import generator
from walkback.core.settings import require_at_least, require_memory
from walkback.data.dataset import CatalogSource, Dataset, digest
from walkback.data.tokens import token_windows


@dataclass(frozen=True)
class Markov(CatalogSource):
    """A table gives the next token of each pair of tokens; with probability `noise` any token comes instead.

    Neither of the two tokens alone says anything of the next one: every row and every column of the table holds each
    token once. So no linear map of their embeddings predicts it.
    """

    vocabulary: int = 12
    length: int = 16
    noise: float = 0.1
    train: int = 6_000
    test: int = 2_000
    task_seed: int = 0
    """Seed of the task, independent of the runs' seeds: all runs get the same windows."""

    def __post_init__(self) -> None:
        least = {"vocabulary": 2, "length": 3, "train": 1, "test": 1, "noise": 0, "task_seed": 0}
        for name, bound in least.items():
            require_at_least(getattr(self, name), bound, f"{name} of markov")
        # Tokens are of eight bytes, the table has a row for each two tokens.
        require_memory(2 * (self.train + self.test) * self.length + 2 * self.vocabulary**2, "markov")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.length,)

    @property
    def classes(self) -> int:
        return self.vocabulary

    @property
    def train_size(self) -> int:
        return self.train

    @property
    def per_token(self) -> bool:
        return True

    def samples(self, root: Path | None) -> Dataset:
        draws = generator(self.task_seed, "markov")
        rows, columns, names = (torch.randperm(self.vocabulary, generator=draws) for _ in range(3))
        # A Latin square with its rows, columns and tokens permuted.
        table = names[(rows[:, None] + columns) % self.vocabulary]
        train_x, train_y = token_windows(self._windows(table, self.train, draws))
        test_x, test_y = token_windows(self._windows(table, self.test, draws))
        sha256 = digest(train_x, train_y, test_x, test_y)
        return Dataset(train_x, train_y, test_x, test_y, self.vocabulary, digest=sha256)

    def _windows(self, table: Tensor, count: int, draws: Generator) -> Tensor:
        """Chains of length + 1 tokens that begin with two random ones."""
        drawn = torch.randint(self.vocabulary, (count, self.length + 1), generator=draws)
        is_noise = torch.rand(count, self.length + 1, generator=draws) < self.noise
        for at in range(2, self.length + 1):
            drawn[:, at] = torch.where(is_noise[:, at], drawn[:, at], table[drawn[:, at - 2], drawn[:, at - 1]])
        return drawn


DATA_SET = Markov
