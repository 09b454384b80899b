"""A residual network in plain PyTorch with a training loop of its own, as a user of `diagnose` has them, and mistakes
that such code can have."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from walkback.core.random_streams import generator, stream_seed
from walkback.data.dataset import Dataset

Training = Literal["backprop", "flipped sign", "redrawn feedback"]
LEARNING_RATE, WEIGHT_DECAY = 0.01, 0.01
EXPLOSION = 1e4


class _WithFeedback(torch.autograd.Function):
    """A Linear whose backward pass uses another matrix than its weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, feedback: Tensor) -> Tensor:
        ctx.save_for_backward(x, feedback)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (grad,), (x, feedback) = grads, ctx.saved_tensors
        return grad @ feedback, grad.t() @ x, grad.sum(0), None


class _FeedbackLinear(nn.Linear):
    """A Linear whose backward pass uses `feedback` in place of the weight, once there is one."""

    feedback: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.feedback is None:
            return super().forward(x)
        feedback = self.feedback.to(x.dtype)
        found: Tensor = _WithFeedback.apply(x, self.weight, self.bias, feedback)  # type: ignore[no-untyped-call]
        return found


class Branch(nn.Module):
    """A residual branch."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.first, self.second = _FeedbackLinear(width, width), _FeedbackLinear(width, width)
        nn.init.normal_(self.second.weight, std=0.01)

    def forward(self, h: Tensor) -> Tensor:
        found: Tensor = self.second(F.gelu(self.first(self.norm(h))))
        return found


class OwnNet(nn.Module):
    """A pre-norm residual MLP with a terminal norm."""

    def __init__(self, features: int, width: int, depth: int, classes: int):
        super().__init__()
        self.stem, self.head = nn.Linear(features, width), nn.Linear(width, classes)
        self.blocks = nn.ModuleList(Branch(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.draws: torch.Generator | None = None
        """With it, each state's gradient is replaced by the output error, projected by matrices drawn in each pass."""

    @property
    def branches(self) -> list[Branch]:
        return [cast(Branch, block) for block in self.blocks]

    def forward(self, x: Tensor) -> Tensor:
        error: list[Tensor] = []
        h = self._state(self.stem(x), error)
        for block in self.blocks:
            h = self._state(h + block(h), error)
        logits: Tensor = self.head(self.norm(h))
        if self.draws is not None and logits.requires_grad:
            logits.register_hook(error.append)  # type: ignore[no-untyped-call]
        return logits

    def _state(self, h: Tensor, error: list[Tensor]) -> Tensor:
        if self.draws is None or not h.requires_grad:
            return h
        matrix = torch.randn(self.head.out_features, h.shape[1], generator=self.draws)
        h.register_hook(lambda g: error[-1] @ matrix.to(g.dtype))  # type: ignore[no-untyped-call]
        return h


@dataclass(frozen=True)
class OwnTask:
    """A data set and the size of the network that is trained on it."""

    data: Dataset
    width: int
    depth: int
    epochs: int
    batch: int

    def network(self, seed: int) -> OwnNet:
        """The network before training. torch draws initial weights from its global generator, which is restored."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stream_seed(seed, "own loop"))
            return OwnNet(self.data.train_x.shape[1], self.width, self.depth, self.data.classes)

    def trained(self, seed: int, training: Training, *, frozen: bool = False) -> OwnNet:
        """A network trained in one of these ways; with `frozen` its blocks stay as they were drawn."""
        model, order = self.network(seed), generator(seed, "own loop order")
        if training == "redrawn feedback":
            model.draws = generator(seed, "own loop feedback")
        model.blocks.requires_grad_(not frozen)
        leaves = [leaf for leaf in model.parameters() if leaf.requires_grad]
        optimiser = torch.optim.AdamW(leaves, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        steps = len(self.data.train_y) // self.batch
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.epochs * steps)
        for _ in range(self.epochs):
            rows = torch.randperm(len(self.data.train_y), generator=order)[: steps * self.batch]
            for picked in torch.split(rows, self.batch):
                optimiser.zero_grad()
                backward_pass(model, (self.data.train_x[picked], self.data.train_y[picked]), training)
                optimiser.step()
                schedule.step()
        return model.requires_grad_(True).eval()

    def right(self, model: nn.Module) -> Tensor:
        """Which test samples a model classifies correctly."""
        with torch.no_grad():
            logits: Tensor = model(self.data.test_x)
        return logits.argmax(-1) == self.data.test_y


def backward_pass(model: nn.Module, batch: tuple[Tensor, Tensor], training: Training = "backprop") -> None:
    """The backward pass of one training step, which leaves gradients in `.grad`."""
    F.cross_entropy(model(batch[0]), batch[1]).backward()  # type: ignore[no-untyped-call]
    if training == "flipped sign":
        assert isinstance(model, OwnNet)
        for leaf in model.blocks.parameters():
            if leaf.grad is not None:
                leaf.grad.neg_()


def with_blocks_reset(model: OwnNet, initial: OwnNet) -> OwnNet:
    """A copy whose blocks have their initial parameters."""
    return _changed(model, lambda found: found.blocks.load_state_dict(initial.blocks.state_dict()))


def with_constant_predictions(model: OwnNet) -> OwnNet:
    """A copy whose head ignores its input."""
    return _changed(model, lambda found: found.head.weight.data.zero_())


def with_exploded_stream(model: OwnNet) -> OwnNet:
    """A copy whose branches have outputs larger by `EXPLOSION`."""

    def explode(found: OwnNet) -> None:
        for leaf in (leaf for branch in found.branches for leaf in branch.second.parameters()):
            leaf.data.mul_(EXPLOSION)

    return _changed(model, explode)


def with_feedback(model: OwnNet, seed: int, own_share: float) -> OwnNet:
    """A copy whose backward pass uses other matrices: `own_share` of the weight, the rest drawn with its size."""
    draws = generator(seed, "own loop other feedback")

    def change(found: OwnNet) -> None:
        for branch in found.branches:
            for linear in (branch.first, branch.second):
                weight = linear.weight.detach()
                drawn = torch.randn(weight.shape, generator=draws) * weight.square().mean().sqrt()
                linear.feedback = own_share * weight + (1 - own_share**2) ** 0.5 * drawn

    return _changed(model, change)


def _changed(model: OwnNet, change: Callable[[OwnNet], object]) -> OwnNet:
    found = copy.deepcopy(model)
    change(found)
    return found
