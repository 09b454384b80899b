"""Ordinary nn.Modules, as users write them, to be trained by credit rules."""

from __future__ import annotations

import math
import random

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.w1, self.w2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)
        nn.init.normal_(self.w2.weight, std=0.3)

    def forward(self, h):
        return h + self.w2(F.gelu(self.w1(self.norm(h))))


class PlainResMLP(nn.Module):
    """The same function as the network `resmlp`."""

    def __init__(self, d=8, depth=3, inputs=6, classes=4):
        super().__init__()
        self.stem = nn.Linear(inputs, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(depth)])
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x):
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h))


class Branch(Block):
    def forward(self, h):
        return self.w2(F.gelu(self.w1(self.norm(h))))


class BranchMLP(PlainResMLP):
    """Its blocks return the residual branch."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Branch(8) for _ in range(3)])

    def forward(self, x):
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = h + block(h)
        return self.out(self.norm(h))


class ConvBlock(nn.Module):
    def __init__(self, into, out, stride, groups=1):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding="same", groups=groups, bias=False)
        self.short = nn.Identity() if stride == 1 and into == out else nn.Conv2d(into, out, 1, stride)

    def forward(self, h):
        z = F.relu(self.bn1(self.conv1(h)))
        return F.relu(self.bn2(self.conv2(z)) + self.short(h))


class TinyResNet(nn.Module):
    """Two stages; the second halves the maps and doubles the channels."""

    IMAGES = True

    def __init__(self, width=4, classes=4):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.stage1 = nn.Sequential(ConvBlock(width, width, 1), ConvBlock(width, width, 1, groups=2))
        self.stage2 = nn.Sequential(ConvBlock(width, 2 * width, 2), ConvBlock(2 * width, 2 * width, 1))
        self.fc = nn.Linear(2 * width, classes)

    def forward(self, x):
        h = self.stage2(self.stage1(F.relu(self.bn(self.conv(x)))))
        return self.fc(h.mean((2, 3)))


class TinyViT(nn.Module):
    """torch's own encoder layers, a cls token, dropout."""

    IMAGES = True

    def __init__(self, d=8, classes=4, dropout=0.2):
        super().__init__()
        self.patch = nn.Conv2d(3, d, 4, 4)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 4, d))
        self.drop = nn.Dropout(dropout)
        layers = [nn.TransformerEncoderLayer(d, 2, 2 * d, dropout, batch_first=True, norm_first=True) for _ in range(2)]
        self.layers = nn.ModuleList(layers)
        self.norm, self.fc = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x):
        tokens = self.patch(x).flatten(2).mT + self.pos
        h = self.drop(torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1))
        for layer in self.layers:
            h = layer(h)
        return self.fc(self.norm(h[:, 0]))


class Conv1D(nn.Module):
    """As in transformers: a Linear whose weight is [inputs, outputs]."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.outputs = outputs
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) * 0.2), nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return flat.view(*x.size()[:-1], self.outputs)


class GPTBlock(nn.Module):
    def __init__(self, d, heads=2):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.c_attn, self.c_proj = Conv1D(3 * d, d), Conv1D(d, d)
        self.c_fc, self.c_out = Conv1D(4 * d, d), Conv1D(d, 4 * d)
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, h, attention_mask=None):
        q, k, v = (
            part.view(*part.shape[:-1], self.heads, -1).transpose(1, 2)
            for part in self.c_attn(self.ln_1(h)).split(h.shape[-1], dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask)
        h = h + self.scale * self.c_proj(mixed.transpose(1, 2).reshape(h.shape))
        return (h + self.c_out(F.gelu(self.c_fc(self.ln_2(h)))), None)


class TinyGPT(nn.Module):
    """Blocks of Conv1D that return tuples and get a causal mask; inputs are cut into tokens of two numbers."""

    def __init__(self, d=8, classes=4):
        super().__init__()
        self.wte, self.wpe = nn.Linear(2, d), nn.Embedding(3, d)
        self.h = nn.ModuleList([GPTBlock(d) for _ in range(2)])
        self.ln_f, self.score = nn.LayerNorm(d), nn.Linear(d, classes, bias=False)
        self.register_buffer("places", torch.arange(3))

    def forward(self, x):
        n = len(x)
        h = self.wte(x.reshape(n, 3, 2)) + self.wpe(self.places)
        mask = torch.ones(3, 3, dtype=torch.bool).tril().expand(n, 1, 3, 3)
        for block in self.h:
            h = block(h, attention_mask=mask)[0]
        return self.score(self.ln_f(h)).mean(1)


class PlainMLP(nn.Module):
    """No skip, no norm."""

    def __init__(self, d=8):
        super().__init__()
        self.stem = nn.Linear(6, d)
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3)])
        self.out = nn.Linear(d, 4)

    def forward(self, x):
        return self.out(self.layers(torch.tanh(self.stem(x))))


class Tied(PlainResMLP):
    """The head and a block share a weight."""

    def __init__(self):
        super().__init__(classes=8)
        self.out.weight = self.blocks[1].w1.weight


class TiedEnds(PlainResMLP):
    """Stem and head share a weight."""

    def __init__(self):
        super().__init__(d=6, classes=6)
        self.out.weight = self.stem.weight


class TiedInside(PlainResMLP):
    """The two Linears of a block share a weight."""

    def __init__(self):
        super().__init__()
        for block in self.blocks:
            block.w2.weight = block.w1.weight


class SkipsToHead(PlainResMLP):
    """The head reads the input, too."""

    def forward(self, x):
        return super().forward(x) + x[:, :4]


class StochasticDepth(PlainResMLP):
    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h if self.training and random.random() < 0.5 else block(h)
        return self.out(h)


class NoisyBlocks(PlainResMLP):
    def forward(self, x):
        h = self.stem(x + torch.randn_like(x) if self.training else x)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


class EinsumBlock(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d, d) / math.sqrt(d))

    def forward(self, h):
        return h + torch.einsum("nd,ed->ne", F.relu(h), self.weight)


class EinsumNet(PlainResMLP):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([EinsumBlock() for _ in range(3)])


class Branching(PlainResMLP):
    """Its way through the blocks depends on the numbers, so it cannot be mapped over models."""

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h)) if float(h.sum()) > -1e9 else self.out(h)
