"""Any nn.Module as a network: its parameters as leaves, its stem, blocks and head as pure functions.

`module_network` builds the module, finds its blocks as `diagnose` does, and checks on a few random samples that the
parts together compute what the module computes, and have its gradients; otherwise it refuses the module by name.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import torch
from torch import Generator, Tensor, nn

from walkback.core.errors import InputError
from walkback.core.settings import Scalar, Spec
from walkback.nets.module_check import check_module
from walkback.nets.module_facts import ModuleFacts, find_facts
from walkback.nets.module_operations import MASK, Operations
from walkback.nets.module_run import ModuleRun
from walkback.nets.module_source import BLOCKS, ModuleSource, seeded, source_of_spec
from walkback.nets.network import BlockLayer, Leaves, Linear, Network, plain_linear

SEEDS = 2**62


@dataclass(frozen=True)
class ModuleNetwork(Network):
    """A module taken as a network."""

    source: ModuleSource = field(kw_only=True)
    blocks: str = field(kw_only=True)
    """"auto", or the path of the blocks' container, or their names joined by "+"."""
    facts: ModuleFacts = field(kw_only=True, compare=False, repr=False)
    training: bool = field(default=False, kw_only=True)
    _masks: Leaves = field(default_factory=dict, kw_only=True, compare=False, repr=False)
    _moments: Leaves = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    @property
    def settings(self) -> dict[str, Scalar]:
        named = {} if self.blocks == "auto" else {BLOCKS: self.blocks}
        return {**self.source.settings, **named}

    @property
    def state_shape(self) -> tuple[int, ...]:
        return self.facts.shapes[0]

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.facts.shapes

    @property
    def adds_input(self) -> bool:
        return self.facts.kind == "branch"

    @property
    def found(self) -> tuple[str, ...]:
        return (f"{self.source.name}: stem, {self.facts.found}, head", *self.facts.notes)

    @property
    def layers(self) -> tuple[BlockLayer, ...]:
        return self.facts.layers

    @property
    def layers_problem(self) -> str | None:
        return self.facts.layers_problem

    @property
    def head_reads_cls(self) -> bool:
        return self.facts.head_reads_cls

    @property
    def alone(self) -> str:
        return self.facts.alone

    @property
    def patch_leaves(self) -> tuple[str, ...]:
        return self.facts.patch_leaves

    @property
    def buffers(self) -> tuple[str, ...]:
        return (*self.facts.momenta, *self.facts.fixed)

    @property
    def is_calibrated(self) -> bool:
        return False

    def in_training(self) -> ModuleNetwork:
        return replace(self, training=True, _moments={}) if self.facts.trains_differently else self

    def with_noise(self, noise: Leaves) -> ModuleNetwork:
        masks = {name: mask for name, mask in noise.items() if name.startswith(MASK)}
        return replace(self, _masks=masks) if masks else self

    def draw(self, batch: int, generator: Generator) -> Leaves:
        return {
            name: (torch.rand(batch, *shape, generator=generator) >= p).float()
            for name, (shape, p) in self.facts.masks.items()
        }

    def take_moments(self) -> Leaves:
        found = dict(self._moments)
        self._moments.clear()
        return found

    def moved_buffers(self, params: Leaves, moments: Leaves) -> Leaves:
        momenta = self.facts.momenta
        return {name: (1 - momenta[name]) * params[name] + momenta[name] * value for name, value in moments.items()}

    def init(self, generator: Generator) -> Leaves:
        seed = int(torch.randint(SEEDS, (), generator=generator))
        return self.facts.leaves_of(self.source.build(seed, self.input_shape, self.classes))

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        return self._run.stem(leaves, x, self._operations("stem", leaves))

    def block(self, index: int, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        return self._run.block(index, leaves, h, self._operations(f"blocks.{index}", leaves, linear))

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        return self._run.head(leaves, h, self._operations("head", leaves))

    @property
    def _run(self) -> ModuleRun:
        return self.facts.runs[self.training]

    def _operations(self, part: str, leaves: Leaves, linear: Linear = plain_linear) -> Operations:
        masks = self._masks if self.training else None
        return Operations(part, leaves, linear=linear, masks=masks, moments=self._moments if self.training else None)


_KNOWN: dict[tuple[ModuleSource, str, tuple[int, ...], int], ModuleNetwork] = {}
"""Networks made in this process: checking a module takes a second."""


def module_network(spec: Spec, input_shape: tuple[int, ...], classes: int) -> ModuleNetwork:
    """The network that a configuration names; refused if the module cannot be taken as one."""
    source, blocks = source_of_spec(spec), str(spec.settings.get(BLOCKS, "auto"))
    key = (source, blocks, input_shape, classes)
    if key not in _KNOWN:
        _KNOWN[key] = _make(*key)
    return _KNOWN[key]


def _make(source: ModuleSource, blocks: str, input_shape: tuple[int, ...], classes: int) -> ModuleNetwork:
    def build(seed: int) -> nn.Module:
        return source.build(seed, input_shape, classes)

    try:
        with warnings.catch_warnings(), seeded(0):
            warnings.simplefilter("ignore")  # A module warns again when it is trained.
            facts = find_facts(build, blocks, input_shape, classes)
            net = ModuleNetwork(
                input_shape=input_shape,
                classes=classes,
                depth=len(facts.shapes) - 1,
                source=source,
                blocks=blocks,
                facts=facts,
            )
            alone, trains_differently = check_module(net, facts)
    except InputError as error:
        reason = str(error).rstrip(".")
        raise InputError(f"The network '{source.reference}' cannot be trained by credit rules: {reason}.") from error
    return replace(net, facts=replace(facts, alone=alone, trains_differently=trains_differently))
