"""Windows of tokens as inputs and labels: every token is to be predicted from those before it."""

from __future__ import annotations

from torch import Tensor


def token_windows(windows: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs [n, length] as floats and labels [n, length] of windows of length + 1 tokens."""
    return windows[:, :-1].float().contiguous(), windows[:, 1:].long().contiguous()
