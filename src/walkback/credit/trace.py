"""One forward pass with constant parameters; each part's pullback (VJP) is kept, so that no part runs twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vjp

from walkback.nets.network import Leaves, Linear, Network, part


class Pullback:
    """One part of the network applied once: its output and its VJP.

    For a per-sample cotangent c [n, ...], `leaves` gives the gradient of (1/n) sum_i <output[i], c[i]> in the leaves,
    and `input` that of sum_i <output[i], c[i]> in the input: the division by the batch size happens here, for all
    rules. The result for the last cotangent is cached, since backprop uses each twice (as credit and for the block's
    update).
    """

    def __init__(
        self,
        function: Callable[[Leaves, Tensor], Tensor],
        leaves: Leaves,
        x: Tensor,
        with_input: bool,
        take_moments: Callable[[], Leaves] = dict,
    ):
        """`take_moments` is called after `function`; what it returns are the constants `moments`."""
        names = tuple(leaves)

        # Tensors as arguments rather than a dict: torch.func flattens nested arguments in every call.
        def flat(*tensors: Tensor) -> tuple[Tensor, Leaves]:
            output = function(dict(zip(names, tensors, strict=False)), tensors[-1] if with_input else x)
            return output, take_moments()

        arguments = (*leaves.values(), x) if with_input else tuple(leaves.values())
        self.output, self._back, self.moments = vjp(flat, *arguments, has_aux=True)  # type: ignore[misc]
        self._names = names
        self._samples = x.shape[0]
        self._with_input = with_input
        self._last_cotangent: Tensor | None = None

    def leaves(self, cotangent: Tensor) -> Leaves:
        """Gradient in the leaves, of the batch mean."""
        return dict(zip(self._names, self._pull(cotangent), strict=False))

    def input(self, cotangent: Tensor) -> Tensor:
        """Gradient in the input, per sample."""
        assert self._with_input, "this pullback was taken over the leaves only"
        return self._pull(cotangent)[-1] * self._samples

    def push(self, direction: Leaves) -> Tensor:
        """The transpose of `leaves`: the cotangent whose inner product with any other is that of the other's gradient
        with `direction`."""
        with torch.enable_grad():
            cotangent = torch.zeros_like(self.output).requires_grad_()
            found = dict(zip(self._names, self._back(cotangent / self._samples), strict=False))
        used = [name for name, gradient in found.items() if gradient.requires_grad and name in direction]
        return torch.autograd.grad([found[n] for n in used], cotangent, [direction[n] for n in used])[0]

    def _pull(self, cotangent: Tensor) -> tuple[Tensor, ...]:
        if self._last_cotangent is not cotangent:
            self._last_gradients: tuple[Tensor, ...] = self._back(cotangent / self._samples)
            self._last_cotangent = cotangent
        return self._last_gradients


@dataclass(frozen=True)
class Trace:
    """The values of one forward pass that a credit rule gets; all tensors are constants."""

    x: Tensor
    y: Tensor
    target: Tensor
    """One-hot labels [n, classes]; a network that predicts at every token has [n, tokens, classes] throughout."""
    states: tuple[Tensor, ...]
    """h_0..h_L."""
    logits: Tensor
    losses: Tensor
    """Per-sample cross-entropy [n]; the mean over a sample's tokens where each has a label."""
    error: Tensor
    """softmax(logits) - target [n, classes], the loss gradient in the logits: divided by the number of tokens where
    each has a label."""
    top: Tensor
    """Exact gradient of each sample's own loss in h_L."""
    stem: Pullback
    blocks: tuple[Pullback, ...]
    branches: tuple[Tensor, ...]
    """The branch outputs f_0..f_{L-1}."""
    head_gradient: Leaves
    """Gradient of the mean loss in the head's leaves."""
    adds_input: bool = True
    """Whether a block's pullback is that of its branch, so that credit also passes beside it."""
    moments: Leaves = field(default_factory=dict)
    """Batch statistics of the network's norms, where it keeps running ones."""


def trace(net: Network, params: Leaves, x: Tensor, y: Tensor, linears: Sequence[Linear], with_input: bool) -> Trace:
    """Run the network forward once and keep all pullbacks.

    `linears[l]` applies the Linears of block l. `with_input` also keeps the blocks' pullbacks to their inputs, needed
    by rules that send credit back through the blocks.
    """
    stem = Pullback(net.stem, part(params, "stem"), x, False, net.take_moments)
    states, branches = [stem.output], []
    blocks = []
    for index, linear in enumerate(linears):
        leaves, h = part(params, f"blocks.{index}"), states[-1]
        block = Pullback(_block(net, index, linear), leaves, h, with_input, net.take_moments)
        blocks.append(block)
        branches.append(net.residual_of(h, block.output))
        states.append(h + block.output if net.adds_input else block.output)
    head = Pullback(net.head, part(params, "head"), states[-1], True, net.take_moments)
    logits = head.output
    target = one_hot(y, net.classes).to(logits.dtype)
    losses, error = cross_entropy(logits, y)
    return Trace(
        x=x,
        y=y,
        target=target,
        states=tuple(states),
        logits=logits,
        losses=losses,
        error=error,
        top=head.input(error),
        stem=stem,
        blocks=tuple(blocks),
        branches=tuple(branches),
        head_gradient=head.leaves(error),
        adds_input=net.adds_input,
        moments={name: value for each in (stem, *blocks, head) for name, value in each.moments.items()},
    )


def _block(net: Network, index: int, linear: Linear) -> Callable[[Leaves, Tensor], Tensor]:
    return lambda leaves, h: net.block(index, leaves, h, linear)


def cross_entropy(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample's loss, and its gradient in the logits; where each token has a label, the mean over the tokens."""
    error = softmax_error(logits, one_hot(y, logits.shape[-1]).to(logits.dtype))
    if y.ndim == 1:
        return F.cross_entropy(logits, y, reduction="none"), error
    losses = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
    return losses.reshape(y.shape).mean(1), error / y.shape[1]


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Boolean one-hot labels; a comparison, because `F.one_hot` does not work under vmap inside derivatives."""
    return y[..., None] == torch.arange(classes, device=y.device)


def softmax_error(logits: Tensor, target: Tensor) -> Tensor:
    """softmax - target, with the label's entry computed as -sum of the others: p - 1 loses precision near p = 1."""
    others = logits.softmax(-1) * (1 - target)
    return others - target * others.sum(-1, keepdim=True)
