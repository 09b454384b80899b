"""The linear maps between the credit at a block's output and the gradient of the block's parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from walkback.credit.trace import Pullback
from walkback.measure.tape import Tape
from walkback.measure.vectors import norm_of
from walkback.nets.network import Leaves, named, part


class BlockMaps(Protocol):
    def pull(self, block: int, credit: Tensor) -> Leaves:
        """The gradients of the block's parameters when a credit [n, ...] arrives at its output."""

    def push(self, block: int, direction: Leaves) -> Tensor:
        """The transpose of `pull`: the change of the block's output per unit step of its parameters in this direction,
        where the block's backward pass is its derivative."""


@dataclass(frozen=True)
class TracedBlocks:
    """Blocks of a walkback network, as its rule differentiates them."""

    blocks: Sequence[Pullback]

    def pull(self, block: int, credit: Tensor) -> Leaves:
        return named(self.blocks[block].leaves(credit), f"blocks.{block}")

    def push(self, block: int, direction: Leaves) -> Tensor:
        return self.blocks[block].push(part(direction, f"blocks.{block}"))


@dataclass(frozen=True)
class TapeBlocks:
    """Blocks of a module, from a replay of its forward pass."""

    tape: Tape
    parameters: Mapping[str, int]
    """The numbers on the tape of the parameters."""
    outputs: Sequence[int]
    """The numbers of the blocks' outputs."""
    leaves: Leaves
    """The parameters as a replay with gradients used them."""
    replayed: Sequence[Tensor]
    """The blocks' outputs of that replay."""
    names: Mapping[int, Sequence[str]]
    """The parameters of each block."""
    lift: torch.dtype | None

    def pull(self, block: int, credit: Tensor) -> Leaves:
        own = self.names.get(block, ())
        output = self.replayed[block]
        found = torch.autograd.grad(
            output, [self.leaves[name] for name in own], credit.to(output.dtype), allow_unused=True, retain_graph=True
        )
        return {name: g for name, g in zip(own, found, strict=True) if g is not None}

    def push(self, block: int, direction: Leaves) -> Tensor:
        """By a central difference: not every operation can be differentiated twice, as fused attention cannot."""
        before = {name: self.tape.external[self.parameters[name]] for name in direction}
        sizes = [norm_of(list(leaves.values())) for leaves in (before, direction)]
        step = float(torch.finfo(self.replayed[block].dtype).eps ** (1 / 3) * sizes[0] / sizes[1])

        def output(sign: int) -> Tensor:
            moved = {self.parameters[n]: before[n] + sign * step * direction[n].to(before[n]) for n in direction}
            with torch.no_grad():
                return self.tape.replay(given=moved, lift=self.lift, until=self.outputs[block])[self.outputs[block]]

        return (output(1) - output(-1)) / (2 * step)
