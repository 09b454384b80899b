"""Synthetic task, no download: Gaussian inputs labelled by a random `student_net`.

Size: 20,000 training and 4,000 test samples by default
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from walkback.core.random_streams import generator
from walkback.core.settings import require_above, require_at_least, require_memory
from walkback.data.dataset import CatalogSource, Dataset, digest
from walkback.nets.archs.student_net import StudentNet


@dataclass(frozen=True)
class Teacher(CatalogSource):
    """Inputs are N(0, I); the label is the argmax of a random `student_net` of its default size.

    The teacher's branches are initialised larger than a student's, so that its depth matters. Its head's bias is set so
    that each logit averages zero over the training inputs, so that no class is rare. It is computed in float64, where
    rounding does not affect labels.
    """

    dim: int = 64
    labels: int = 10
    train: int = 20_000
    test: int = 4_000
    branch_std: float = 0.2
    """Standard deviation of the teacher's W2; PyTorch's default would be 0.05, and a student starts at 0.01."""
    teacher_seed: int = 0
    """Seed of the teacher and of the samples, independent of the runs' seeds: all runs get the same task."""

    def __post_init__(self) -> None:
        for name, least in (("dim", 1), ("labels", 2), ("train", 1), ("test", 1), ("teacher_seed", 0)):
            require_at_least(getattr(self, name), least, f"{name} of teacher")
        require_above(self.branch_std, 0, "branch_std of teacher")
        require_memory((self.train + self.test + self.labels) * self.dim, "teacher")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def classes(self) -> int:
        return self.labels

    @property
    def train_size(self) -> int:
        return self.train

    def samples(self, root: Path | None) -> Dataset:
        net = StudentNet(self.input_shape, self.labels, w2_std=self.branch_std)
        params = {name: leaf.double() for name, leaf in net.init(generator(self.teacher_seed, "teacher")).items()}
        x = torch.randn(self.train + self.test, self.dim, generator=generator(self.teacher_seed, "teacher inputs"))
        logits = torch.cat([net.forward(params, rows.double()) for rows in torch.split(x, 4096)])
        y = (logits - logits[: self.train].mean(0)).argmax(-1)
        train_x, test_x = x[: self.train].contiguous(), x[self.train :].contiguous()
        train_y, test_y = y[: self.train].contiguous(), y[self.train :].contiguous()
        return Dataset(train_x, train_y, test_x, test_y, self.labels, digest=digest(train_x, train_y, test_x, test_y))


DATA_SET = Teacher
