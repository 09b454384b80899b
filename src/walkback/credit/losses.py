"""The per-sample loss formed so that a small change of it is not lost."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def sample_losses(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of each sample [n] from logits and one-hot targets [n, classes].

    As softplus(logsumexp of the others - the label's logit): exact to rounding *relative to itself*, where
    logsumexp - logit is only as exact as the logits are and says 0 on confident samples.
    """
    others = torch.where(target > 0, -torch.inf, logits).logsumexp(-1)
    margin = others - (logits * target).sum(-1)
    # softplus as max(m, 0) + log1p(exp(-|m|)): torch's own turns into the identity above a threshold.
    return F.relu(margin) + torch.log1p(torch.exp(-margin.abs()))
