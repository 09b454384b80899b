"""Networks whose backward pass is not the derivative of their forward pass, and plain copies with the same weights."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

D, TOKENS, CLASSES, FEATURES = 12, 5, 4, 6


class FeedbackFunction(torch.autograd.Function):
    """A Linear as feedback alignment libraries write it: the backward pass uses another matrix."""

    @staticmethod
    def forward(ctx, x, weight, bias, feedback):
        ctx.save_for_backward(x, feedback)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, grad):
        x, feedback = ctx.saved_tensors
        rows, columns = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        return grad @ feedback, rows.t() @ columns, rows.sum(0), None


class FeedbackLinear(nn.Linear):
    def __init__(self, fan_in, fan_out):
        super().__init__(fan_in, fan_out)
        self.register_buffer("feedback", torch.randn(fan_out, fan_in) / fan_in**0.5)

    def forward(self, x):
        return FeedbackFunction.apply(x, self.weight, self.bias, self.feedback)


class MlpBranch(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(D), linear(D, D), linear(D, D)

    def forward(self, h):
        return self.second(F.gelu(self.first(self.norm(h))))


class BatchNormBranch(MlpBranch):
    def __init__(self, linear):
        super().__init__(linear)
        self.norm = nn.BatchNorm1d(D)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)


class AttentionBranch(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(D), nn.MultiheadAttention(D, 2, batch_first=True)
        self.mlp = MlpBranch(linear)

    def forward(self, h):
        normed = self.norm(h)
        mask = torch.full((TOKENS, TOKENS), -torch.inf, dtype=h.dtype, device=h.device).triu(1)
        f = self.attention(normed, normed, normed, need_weights=False, attn_mask=mask)[0]
        return f + self.mlp(h + f)


BRANCHES = {"mlp": MlpBranch, "batchnorm": BatchNormBranch, "transformer": AttentionBranch}
LIES = ("function", "full_hook", "tensor_hook", "detached", "dfa", "checkpoint", "reentrant")


class Net(nn.Module):
    """A residual network; `lie` is what its backward pass does instead of the derivative."""

    def __init__(self, body: str, lie: str | None, depth: int = 3):
        super().__init__()
        linear = FeedbackLinear if lie == "function" else nn.Linear
        self.body, self.lie = body, lie
        self.stem, self.head = nn.Linear(FEATURES, D), nn.Linear(D, CLASSES)
        self.blocks = nn.ModuleList(BRANCHES[body](linear) for _ in range(depth))
        self.feedback = [torch.randn(CLASSES, D) for _ in range(depth + 1)]
        if lie == "full_hook":
            for block in self.blocks:
                block.register_full_backward_hook(lambda module, inputs, outputs: (-2 * outputs[0],))

    def forward(self, x, return_hidden=False):
        h = self.stem(x)
        hiddens = [h]
        for index, block in enumerate(self.blocks):
            h = self._lying(h, index)
            if self.lie in ("checkpoint", "reentrant"):
                f = checkpoint(block, h, use_reentrant=self.lie == "reentrant")
            else:
                f = block(h.detach() if self.lie == "detached" else h)
            h = h + f
            hiddens.append(h)
        logits = self.head(h.mean(1) if self.body == "transformer" else h)
        if self.lie == "dfa" and logits.requires_grad:
            logits.register_hook(self._keep_error)
        return (logits, hiddens) if return_hidden else logits

    def _keep_error(self, error):
        self.error = error

    def _lying(self, h, index):
        if self.lie == "tensor_hook" and h.requires_grad:
            h.register_hook(lambda g: g.flip(-1))
        if self.lie == "dfa" and h.requires_grad:
            matrix = self.feedback[index]
            h.register_hook(lambda g: self._projected(matrix, g))
        return h

    def _projected(self, matrix, g):
        credit = self.error @ matrix.to(g.dtype)
        return credit if g.ndim == 2 else (credit / TOKENS)[:, None].expand_as(g)


def make(body: str, lie: str | None, seed: int = 0) -> Net:
    torch.manual_seed(seed)
    return Net(body, lie).eval()


def plain_copy(model: Net) -> Net:
    """The same forward function with an ordinary backward pass."""
    copy = Net(model.body, None)
    copy.load_state_dict({k: v for k, v in model.state_dict().items() if not k.endswith(".feedback")})
    return copy.eval()


def batch(body: str, count: int = 260):
    draws = torch.Generator().manual_seed(1)
    shape = (TOKENS, FEATURES) if body == "transformer" else (FEATURES,)
    return torch.randn(count, *shape, generator=draws), torch.randint(CLASSES, (count,), generator=draws)
