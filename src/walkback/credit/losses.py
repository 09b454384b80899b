"""The per-sample loss in a form that keeps its relative precision when it is small."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def sample_losses(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of each sample [n] from logits and one-hot targets [n, classes], or [n, tokens, classes]: then the
    mean over the sample's tokens.

    Computed as softplus(logsumexp of the others - the label's logit), whose rounding error is relative to the loss
    itself. The error of logsumexp - logit is relative to the logits, and gives 0 on confident samples.
    """
    others = torch.where(target > 0, -torch.inf, logits).logsumexp(-1)
    margin = others - (logits * target).sum(-1)
    # softplus as max(m, 0) + log1p(exp(-|m|)): torch's own is the identity above a threshold.
    losses = F.relu(margin) + torch.log1p(torch.exp(-margin.abs()))
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses
