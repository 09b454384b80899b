"""The loss of each test sample under a network's final weights."""

from __future__ import annotations

import torch
from torch import Tensor

from walkback.credit.trace import cross_entropy
from walkback.data.feed import TestSet
from walkback.nets.network import Leaves, Network


def test_losses(net: Network, params: Leaves, tests: TestSet) -> Tensor:
    """In nats; where each token has a label, the mean over a window's tokens."""
    with torch.no_grad():
        return torch.cat([cross_entropy(net.forward(params, x), y)[0] for x, y in tests.batches()])
