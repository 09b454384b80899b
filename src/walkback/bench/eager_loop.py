"""The baseline of most ratios: an ordinary eager torch training loop, with the data already on the device.

Its modules compute the same functions as the architectures of the catalog, with torch's own layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.data.dataset import Dataset
from walkback.nets.archs.resmlp import ResMLP
from walkback.nets.archs.small_cnn import SmallCNN
from walkback.nets.archs.student_net import StudentNet
from walkback.nets.archs.vit_mini import ViTMini
from walkback.nets.network import Network
from walkback.training.driver import set_exact_arithmetic


class ResMLPBlock(nn.Module):
    """h + W2 gelu(W1 LayerNorm(h))."""

    def __init__(self, d: int):
        super().__init__()
        self.norm, self.w1, self.w2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.w2(F.gelu(self.w1(self.norm(h))))
        return out


class StudentBlock(nn.Module):
    """h + W2 gelu(W1 h)."""

    def __init__(self, d: int):
        super().__init__()
        self.w1, self.w2 = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = h + self.w2(F.gelu(self.w1(h)))
        return out


class ViTBlock(nn.Module):
    """Pre-norm attention and MLP, each with a skip connection."""

    def __init__(self, d: int, heads: int, hidden: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc1, self.fc2 = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, h: Tensor) -> Tensor:
        n, tokens, d = h.shape
        q, k, v = self.qkv(self.norm1(h)).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        h = h + self.proj(attended.transpose(1, 2).reshape(n, tokens, d))
        out: Tensor = h + self.fc2(F.gelu(self.fc1(self.norm2(h))))
        return out


class Patches(nn.Module):
    """Patch embedding with positions and a class token in front."""

    def __init__(self, net: ViTMini):
        super().__init__()
        self.patch = nn.Conv2d(net.input_shape[0], net.d, net.patch, stride=net.patch)
        self.cls = nn.Parameter(0.02 * torch.randn(net.d))
        self.pos = nn.Parameter(0.02 * torch.randn(net.state_shape[0] - 1, net.d))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return torch.cat([self.cls.expand(len(x), 1, -1), patches], dim=1)


class FirstToken(nn.Module):
    """The class token."""

    def forward(self, h: Tensor) -> Tensor:
        return h[:, 0]


class ConvBlock(nn.Module):
    """Two pre-activation 3x3 convolutions with batch norm and a skip connection."""

    def __init__(self, width: int):
        super().__init__()
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        z = self.conv1(F.relu(self.bn1(h)))
        out: Tensor = h + self.conv2(F.relu(self.bn2(z)))
        return out


def plain_net(net: Network) -> nn.Module:
    """The same network as an ordinary `nn.Module`."""
    blocks: list[nn.Module]
    last: list[nn.Module]
    match net:
        case ResMLP():
            first: list[nn.Module] = [nn.Flatten(), nn.Linear(math.prod(net.input_shape), net.d)]
            blocks = [ResMLPBlock(net.d) for _ in range(net.depth)]
            last = [*([nn.LayerNorm(net.d)] if net.terminal_norm else []), nn.Linear(net.d, net.classes)]
        case StudentNet():
            first = [nn.Flatten(), nn.Linear(math.prod(net.input_shape), net.d)]
            blocks = [StudentBlock(net.d) for _ in range(net.depth)]
            last = [nn.Linear(net.d, net.classes)]
        case ViTMini():
            first = [Patches(net)]
            blocks = [ViTBlock(net.d, net.heads, net.mlp_ratio * net.d) for _ in range(net.depth)]
            last = [FirstToken(), nn.LayerNorm(net.d), nn.Linear(net.d, net.classes)]
        case SmallCNN():
            first = [nn.Conv2d(net.input_shape[0], net.width, 3, stride=2, padding=1)]
            blocks = [ConvBlock(net.width) for _ in range(net.depth)]
            last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(net.width, net.classes)]
        case _:
            raise InputError(
                f"There is no plain version of {type(net).__name__} to time a fleet of it against. "
                "Use resmlp, student_net, vit_mini or small_cnn."
            )
    return nn.Sequential(*first, *blocks, *last)


TrainStep = Callable[[Any], None]
"""A function that takes a batch (x, y) and does one training step."""


def plain_step(net: nn.Module) -> TrainStep:
    """A training step with eager autograd and torch's default AdamW."""
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)

    def step(batch: Any) -> None:
        x, y = batch
        loss = F.cross_entropy(net(x), y)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def plain_loop(data: Dataset, net: Network, batch: int, device: torch.device) -> Callable[[], int]:
    """A function that trains one epoch and returns its number of steps."""
    set_exact_arithmetic(device)
    step = plain_step(plain_net(net).to(device))
    x, y = data.train_x.to(device), data.train_y.to(device)

    def epoch() -> int:
        order = torch.randperm(len(y), device=device)
        steps = len(y) // batch
        with nondeterministic_convolutions():
            for index in order[: steps * batch].view(steps, batch):
                step((x[index], y[index]))
        return steps

    return epoch


@contextmanager
def nondeterministic_convolutions() -> Iterator[None]:
    """Allow cuDNN's fastest convolutions, as plain loops do; walkback's drivers request deterministic ones."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = False
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before
