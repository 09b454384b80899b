import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, h):
        return self.norm(h)


def norms(h, g):
    a = h.norm(dim=-1)
    b = torch.norm(g, 2, -1)
    c = torch.linalg.vector_norm(h, dim=-1)
    d = np.linalg.norm(h.numpy(), axis=-1)
    smallest = np.linalg.norm(h.numpy(), ord=-1)
    return a, b, c, d, smallest, g.norm(1), g.norm(2, -1), g.norm(p=-1)


def other_norm(plot, linalg):
    return plot.norm(0.5), linalg.norm(plot, -1) if isinstance(plot, int) else None
