"""Models as other people write them."""

from __future__ import annotations

import torch
from torch import nn


class Branch(nn.Module):
    """A residual branch, as the reference package's interface wants its blocks."""

    def __init__(self, d: int):
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, h):
        return self.net(h)


class Reference(nn.Module):
    """The duck-typed interface of the reference package's README."""

    def __init__(self, d: int = 12, depth: int = 3, classes: int = 4, features: int = 6):
        super().__init__()
        self.embed = nn.Linear(features, d)
        self.blocks = nn.ModuleList(Branch(d) for _ in range(depth))
        self.out_ln, self.out_head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x, return_hidden=False):
        h = self.embed(x)
        hiddens = [h]
        for block in self.blocks:
            h = h + block(h)
            hiddens.append(h)
        logits = self.out_head(self.out_ln(h))
        return (logits, hiddens) if return_hidden else logits


class Whole(nn.Module):
    """A block that returns the next state."""

    def __init__(self, d: int):
        super().__init__()
        self.branch = Branch(d)

    def forward(self, h):
        return h + self.branch(h)


def sequential(d: int = 12) -> nn.Module:
    return nn.Sequential(nn.Linear(6, d), Whole(d), Whole(d), Whole(d), nn.LayerNorm(d), nn.Linear(d, 4))


class Tokens(nn.Module):
    """Integer tokens through torch's own encoder layers; the head reads token 0, or the mean of all."""

    def __init__(self, pooling: str = "cls", d: int = 8):
        super().__init__()
        self.embedding = nn.Embedding(11, d)
        layers = [nn.TransformerEncoderLayer(d, 2, 16, batch_first=True, norm_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(d, 4)
        self.pooling = pooling

    def forward(self, ids):
        h = self.embedding(ids)
        for layer in self.layers:
            h = layer(h)
        return self.head(h[:, 0] if self.pooling == "cls" else h.mean(1))


class Output(dict):
    """A dict with attributes, as a well-known library returns it."""

    def __getattr__(self, name):
        return self[name]


class TupleBlock(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.inner = Whole(d)

    def forward(self, hidden_states, mask=None):
        return (self.inner(hidden_states), mask)


class Dicts(nn.Module):
    """Keyword inputs, tuples between blocks, an output object with logits."""

    def __init__(self, d: int = 12):
        super().__init__()
        self.stem = nn.Linear(6, d)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(TupleBlock(d) for _ in range(3))})
        self.head = nn.Linear(d, 4)

    def forward(self, pixel_values=None, mask=None):
        h = self.stem(pixel_values)
        for block in self.encoder["layer"]:
            h = block(hidden_states=h, mask=mask)[0]
        return Output(logits=self.head(h), other=None)


class ConvBlock(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, h):
        return h + self.conv(torch.relu(self.norm(h)))


class Convolutions(nn.Module):
    """Two stages of blocks with BatchNorm and dropout, of different shapes, as in a ResNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.stage1 = nn.Sequential(ConvBlock(4), ConvBlock(4))
        self.stage2 = nn.Sequential(ConvBlock(4), ConvBlock(4))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(4, 4)

    def forward(self, x):
        h = self.stage2(self.stage1(self.stem(x)))
        return self.head(self.drop(h.mean((2, 3))))


class InPlace(nn.Module):
    """Blocks that overwrite the state they get."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(12, 12)

        def forward(self, h):
            h += torch.tanh(self.inner(h))
            return h

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 12)
        self.layers = nn.ModuleList(InPlace.Block() for _ in range(3))
        self.head = nn.Linear(12, 4)

    def forward(self, x):
        h = self.stem(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


class Detached(Reference):
    """A model that cuts its own gradient."""

    def forward(self, x, return_hidden=False):
        h = self.embed(x)
        for block in self.blocks:
            with torch.no_grad():
                f = block(h)
            h = h + f
        return self.out_head(self.out_ln(h))
