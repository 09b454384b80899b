"""Train and eval mode mixed: dropout and batch statistics make exact credit look unaligned.

Wrong: backprop's credit in train mode against its reference in eval mode
Right: one pass in eval mode; the model's own mode is put back afterwards
Size: at least 0.2 in cosine, where the truth is 1
Linter: WB006
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from walkback.core.measurements import GROUP
from walkback.measure.discovery import subject_of
from walkback.measure.inputs import regroup
from walkback.measure.restore import left_as_found
from walkback.measure.snapshot import measure
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls import small
from walkback.pitfalls.case import PitfallOutcome


class WithDropout(nn.Module):
    """A residual network such as anyone might measure."""

    def __init__(self, d: int = 32) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(16, d), nn.Linear(d, 10)
        made = [nn.Sequential(nn.Linear(d, d), nn.BatchNorm1d(d), nn.ReLU(), nn.Dropout(0.5)) for _ in range(4)]
        self.blocks = nn.ModuleList(made)

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.stem(x)]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        return states

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.states(x)[-1])
        return logits


def run() -> PitfallOutcome:
    x, y = (part[: 2 * GROUP] for part in small.samples(torch.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = WithDropout().train()
        for _ in range(20):  # Running statistics that fit the data, as a trained model has them.
            model(x)
        noisy = _gradient(model, x, y)
        quiet = _gradient(model.eval(), x, y)
        model.train()
        groups = regroup([(x, y)], distinct=True)
        with left_as_found(model):
            subject = subject_of(model, "auto", *groups[0], None)
            taken = measure(subject, groups, credit=lambda seen: seen.reference)
    assert model.training
    wrong, right = cosines(as_rows(noisy), as_rows(quiet)).mean().item(), float(taken.arrays["credit_cos"][0].mean())
    return PitfallOutcome(wrong, right, right - wrong, "in cosine", 0.2)


def _gradient(model: WithDropout, x: Tensor, y: Tensor) -> Tensor:
    states = model.states(x)
    loss = F.cross_entropy(model.head(states[-1]), y, reduction="sum")
    return torch.autograd.grad(loss, states[0])[0]
