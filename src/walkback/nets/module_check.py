"""Check that a module's parts together are the module: the same logits and gradients, in both modes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.nets.module_facts import TRIAL_SAMPLES, ModuleFacts
from walkback.nets.module_operations import Operations
from walkback.nets.network import Leaves, Network

PARTS_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3}
LONGEST_REASON = 200
FEWER_SAMPLES = 3
"""The second batch size: arguments of blocks must not depend on it."""


def check_module(net: Network, facts: ModuleFacts) -> tuple[str, bool]:
    """Refuse a module whose parts are not the module. Returns why its models cannot share a fleet (empty if they can),
    and whether training mode differs from evaluation mode."""
    params = {name: leaf.to(facts.dtype) for name, leaf in net.init(generator(0, "module")).items()}
    _check_logits(net, facts, params)
    trains_differently = _check_training(net, facts, params)
    return _alone(net, facts, params), trains_differently


def _samples(net: Network, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    draws = generator(1, "module samples")
    x = torch.randn(count, *net.input_shape, generator=draws, dtype=torch.float64).to(dtype)
    return x, torch.randint(net.classes, (count,), generator=draws)


def _whole(facts: ModuleFacts, params: Leaves, x: Tensor, training: bool, masks: Leaves) -> Tensor:
    """The logits of the module itself; in training mode with these dropout masks."""
    tensors = {facts.names[leaf]: value for leaf, value in params.items()}
    if not training:
        return facts.runs[False].whole(tensors, x, lambda _: None)
    operations = Operations("stem", {}, masks=masks)
    with operations:
        return facts.runs[True].whole(
            tensors, x, lambda block: operations.enter("head" if block < 0 else f"blocks.{block}")
        )


def _check_logits(net: Network, facts: ModuleFacts, params: Leaves) -> None:
    """Evaluation mode, at two batch sizes; the pass over zeros for the head takes one sample where that is enough."""
    for rows in (1, None):
        for run in facts.runs.values():
            run.head_rows = rows
        problem = ""
        for count in (TRIAL_SAMPLES, FEWER_SAMPLES):
            x, _ = _samples(net, count, facts.dtype)
            with torch.no_grad():
                expected = _whole(facts, params, x, False, {})
                try:
                    found = net.forward(params, x)
                except (RuntimeError, TypeError, ValueError, IndexError) as error:
                    problem = problem or (str(error) or type(error).__name__).splitlines()[0]
                    continue
            if not _close(found, expected, facts.dtype):
                problem = problem or "the logits differ"
        if not problem:
            return
    raise InputError(
        f"its stem, blocks and head one by one do not compute what it computes ({problem}): something passes beside "
        "the states, such as a skip from the input to the head or an argument of a block that depends on the input"
    )


def _check_training(net: Network, facts: ModuleFacts, params: Leaves) -> bool:
    x, y = _samples(net, TRIAL_SAMPLES, facts.dtype)
    masks = {n: m.to(facts.dtype) for n, m in net.draw(TRIAL_SAMPLES, generator(1, "module masks")).items()}
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    logits = _whole(facts, leaves, x, True, masks)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(1)
        again = _whole(facts, params, x, True, masks)
    if not _close(again, logits.detach(), facts.dtype):
        raise InputError(
            "it draws random numbers in its forward pass (stochastic depth, noise); no rule can repeat them"
        )
    expected = _gradients(logits, y, leaves)
    leaves = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    found = _gradients(net.in_training().with_noise(masks).forward(leaves, x), y, leaves)
    largest = max(float(g.abs().max()) for g in expected.values() if g.numel())
    for name in params:
        if not _close(found[name], expected[name], facts.dtype, largest) and name not in facts.momenta:
            raise InputError(
                f"the gradient of '{facts.names[name]}' does not come through the states alone: the parameter is used "
                "in another part of the network, too"
            )
    if facts.masks or facts.momenta:
        return True
    with torch.no_grad():
        return not _close(_whole(facts, params, x, False, {}), again, facts.dtype)


def _gradients(logits: Tensor, y: Tensor, leaves: Leaves) -> Leaves:
    found = torch.autograd.grad(F.cross_entropy(logits, y), list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(leaf) if g is None else g for (n, leaf), g in zip(leaves.items(), found, strict=True)}


def _alone(net: Network, facts: ModuleFacts, params: Leaves) -> str:
    """Map a training step over two models; the reason why that fails, or empty."""
    x, y = _samples(net, 2 * TRIAL_SAMPLES, facts.dtype)
    xs, ys = x.unflatten(0, (2, -1)), y.unflatten(0, (2, -1))  # type: ignore[no-untyped-call]
    draws = [net.draw(TRIAL_SAMPLES, generator(seed, "module masks")) for seed in (1, 2)]
    masks = {name: torch.stack([each[name] for each in draws]).to(facts.dtype) for name in draws[0]}
    stacked = {name: torch.stack([leaf, 1.1 * leaf]) for name, leaf in params.items()}

    def gradients(params: Leaves, x: Tensor, y: Tensor, masks: Leaves) -> Mapping[str, Tensor]:
        bound = net.in_training().with_noise(masks)
        found: Leaves = grad(lambda p: F.cross_entropy(bound.forward(p, x), y))(params)
        return found

    second = {name: leaves[1] for name, leaves in stacked.items()}
    alone = gradients(second, xs[1], ys[1], {name: mask[1] for name, mask in masks.items()})
    try:
        together = vmap(gradients)(stacked, xs, ys, masks)
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        message = (str(error) or type(error).__name__).splitlines()[0][:LONGEST_REASON]
        depends = "data-dependent control flow" in message
        return "what its code does depends on values of tensors (.item(), `if` on a tensor)" if depends else message
    largest = max(float(g.abs().max()) for g in alone.values() if g.numel())
    same = all(_close(together[name][1], alone[name], facts.dtype, largest) for name in params)
    return "" if same else "mapped over models it gives other gradients"


def _close(found: Tensor, expected: Tensor, dtype: torch.dtype, size: float = 0.0) -> bool:
    if found.shape != expected.shape:
        return False
    found, expected = found.detach(), expected.detach()
    scale = max(size, float(expected.abs().max())) if expected.numel() else 1.0
    difference = (found - expected).abs()
    return not difference.numel() or float(difference.max()) <= PARTS_TOLERANCE[dtype] * max(scale, 1e-12)
