"""Train and eval mode mixed: dropout and batch statistics make exact credit look unaligned.

Wrong: backprop's credit in train mode against its reference in eval mode
Right: one pass in eval mode; the model's mode is restored afterwards
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
from walkback.measure.options import MeasureOptions
from walkback.measure.restore import measurement_mode
from walkback.measure.snapshot import measure
from walkback.measure.vectors import as_rows, cosines
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome


class WithDropout(nn.Module):
    """An ordinary residual network with batch norm and dropout."""

    def __init__(self, d: int = 32) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(16, d), nn.Linear(d, 10)
        blocks = [nn.Sequential(nn.Linear(d, d), nn.BatchNorm1d(d), nn.ReLU(), nn.Dropout(0.5)) for _ in range(4)]
        self.blocks = nn.ModuleList(blocks)

    def states(self, x: Tensor) -> list[Tensor]:
        states = [self.stem(x)]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        return states

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.states(x)[-1])
        return logits


def run() -> PitfallOutcome:
    x, y = (part[: 2 * GROUP] for part in small_networks.samples(torch.float32))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = WithDropout().train()
        for _ in range(20):  # Fit the running statistics to the data, as in a trained model.
            model(x)
        in_train_mode = _gradient(model, x, y)
        in_eval_mode = _gradient(model.eval(), x, y)
        model.train()
        groups = regroup([(x, y)], distinct=True)
        with measurement_mode(model):
            subject = subject_of(model, "auto", *groups[0], None)
            measurements = measure(subject, groups, MeasureOptions(credit=lambda frozen_pass: frozen_pass.reference))
    assert model.training
    wrong, right = (
        cosines(as_rows(in_train_mode), as_rows(in_eval_mode)).mean().item(),
        float(measurements.arrays["credit_cos"][0].mean()),
    )
    return PitfallOutcome(wrong, right, right - wrong, "in cosine", 0.2)


def _gradient(model: WithDropout, x: Tensor, y: Tensor) -> Tensor:
    states = model.states(x)
    loss = F.cross_entropy(model.head(states[-1]), y, reduction="sum")
    return torch.autograd.grad(loss, states[0])[0]
