"""The detectors: what is looked at after every epoch of training, cheap enough to always be on.

One pure function for one model on all evaluation samples at once; a driver applies it to all its models together. There
is no float64 replay and no null here: a detector says when to look closely, the full measurement says what is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from walkback.core.measurements import GROUP
from walkback.core.rng import generator
from walkback.credit.rule import CreditRule, Credits, transport
from walkback.credit.trace import trace
from walkback.nets.network import Leaves, Network, part, plain_linear


@dataclass(frozen=True)
class Sight:
    """What the detectors saw of one model."""

    growth: float
    """Largest ratio of mean hidden norms from one state to the next (D1)."""
    grad_top: float
    """|g_L| @128 (D2)."""
    direction: float
    """Mean pairwise cosine of the groups' mean gradients at h_L (c)."""
    hidden: tuple[float, ...]
    """Mean |h_l|."""
    grad: tuple[float, ...]
    """Mean |g_l| @128."""
    cosine: tuple[float, ...]
    """Mean cosine of credit and gradient, by layer."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Applies(Protocol):
    """What a training driver offers: a function of one model and samples, applied to all its models."""

    def apply(self, function: Any, x: Tensor, y: Tensor, noise: Leaves) -> Leaves: ...


class Detectors:
    """Looks at the models of a driver on fixed evaluation samples."""

    def __init__(self, net: Network, rule: CreditRule, x: Tensor, y: Tensor):
        count = len(y) // GROUP * GROUP
        self._x, self._y = x[:count], y[:count]
        drawn = rule.draw(net, count, generator(0, "detector noise"))
        self._noise = {name: leaf.to(x.dtype).to(x.device) for name, leaf in drawn.items()}
        self._net, self._rule = net, rule.static()

    def look(self, driver: Applies) -> list[Sight]:
        """One sight for each of the driver's models."""
        with torch.no_grad():
            found = driver.apply(self._see, self._x, self._y, self._noise)
        host = {name: values.cpu() for name, values in found.items()}
        models = len(next(iter(host.values())))
        return [_sight({name: values[row] for name, values in host.items()}) for row in range(models)]

    def _see(self, params: Leaves, state: Leaves, knobs: Leaves, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        net, rule = self._net, self._rule.bind(part(knobs, "rule"))
        seen = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)
        reference = transport(seen)
        linears = rule.linears(net, state, noise)
        # Rules with their own way back through a block need a pass of their own; the others share this one.
        own = seen if all(each is plain_linear for each in linears) else None
        own = own or trace(net, params, x, y, linears, with_input=rule.through_blocks)
        credits = rule.credit(net, params, state, own, noise)[0]
        h, g, a = (_rows(net, values) for values in (seen.states, reference, credits))
        top = g[-1].unflatten(0, (-1, GROUP)).mean(1)  # type: ignore[no-untyped-call]
        return {
            "hidden": _norms(h).mean(-1),
            "grad": _norms(g).mean(-1) / GROUP,
            "cosine": _mean_cosine(a, g),
            "tops": top / _norms(top)[..., None],
        }


def _rows(net: Network, values: Credits | Sequence[Tensor]) -> Tensor:
    """[layers, n, features] in float64; of token states that end in a cls head, the cls token."""
    stacked = torch.stack(list(values)).double()
    return stacked[:, :, 0] if net.kind == "tokens" and net.patch_leaves else stacked.flatten(2)


def _norms(values: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return found


def _mean_cosine(a: Tensor, g: Tensor) -> Tensor:
    """Mean over samples whose credit and gradient are both there; NaN where none is."""
    scale_a, scale_g = _norms(a), _norms(g)
    ok = (scale_a > 0) & (scale_g > 0) & scale_a.isfinite() & scale_g.isfinite()
    dots = ((a / torch.where(ok, scale_a, 1.0)[..., None]) * (g / torch.where(ok, scale_g, 1.0)[..., None])).sum(-1)
    return torch.where(ok, dots, 0.0).sum(-1) / ok.sum(-1)


def _sight(found: Mapping[str, Tensor]) -> Sight:
    hidden, tops = found["hidden"], found["tops"]
    upper = torch.triu_indices(len(tops), len(tops), offset=1)
    pairs = (tops @ tops.T)[upper[0], upper[1]]
    return Sight(
        growth=float((hidden[1:] / hidden[:-1]).max()),
        grad_top=float(found["grad"][-1]),
        direction=float(pairs.mean()),
        hidden=tuple(hidden.tolist()),
        grad=tuple(found["grad"].tolist()),
        cosine=tuple(found["cosine"].tolist()),
    )
