"""The base of most ratios: a network and a training loop as people write them, data already on the device."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from walkback.data.dataset import Dataset


class Block(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.norm, self.w1, self.w2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.w2(F.gelu(self.w1(self.norm(h))))
        return out


def plain_net(inputs: int, d: int, depth: int, classes: int) -> nn.Sequential:
    """The ResMLP as an ordinary module."""
    blocks = [Block(d) for _ in range(depth)]
    return nn.Sequential(nn.Linear(inputs, d), *blocks, nn.LayerNorm(d), nn.Linear(d, classes))


def plain_loop(data: Dataset, d: int, depth: int, batch: int, device: torch.device) -> Callable[[], int]:
    """Eager autograd and torch's default AdamW; the function trains one epoch and returns its steps."""
    net = plain_net(data.train_x.shape[1], d, depth, data.classes).to(device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    x, y = data.train_x.to(device), data.train_y.to(device)

    def epoch() -> int:
        order = torch.randperm(len(y), device=device)
        steps = len(y) // batch
        for step in range(steps):
            index = order[step * batch : (step + 1) * batch]
            loss = F.cross_entropy(net(x[index]), y[index])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        return steps

    return epoch
