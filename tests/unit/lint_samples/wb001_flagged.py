import numpy as np
import torch
from torch import linalg
from torch.linalg import vector_norm as length


def norms(h, g):
    a = h.norm(-1)  # flagged
    b = torch.norm(g, -1, keepdim=True)  # flagged
    c = linalg.norm(h, -1)  # flagged
    d = length(g.flatten(1), -1)  # flagged
    e = np.linalg.norm(h.numpy(), -1)  # flagged
    return a, b, c, d, e, (h - g).norm(-2)  # flagged
