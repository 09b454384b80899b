"""Small networks that several reproducers measure: trained once per process, in seconds, on the embedded task.

They are trained in float64, so that a different order of summation on another processor does not change the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.core.configuration import RunConfig
from walkback.core.measurements import Measurements
from walkback.core.settings import Spec
from walkback.data.dataset import Dataset
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.inputs import Groups, regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import Leaves, Network, part
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback.training.single import Single

DEPTH, _EPOCHS, PITFALL_SAMPLES = 4, 3, 1024
CPU = torch.device("cpu")
EXPLODING_DFA = "dfa:scale=unit_error,site=input"
"""The papers' direct feedback alignment, whose hidden states grow with training."""


def resolved(method: str, *, d: int = 32, lr: float = 1e-2, epochs: int = _EPOCHS) -> ResolvedRun:
    """The resolved run of a method on a small ResMLP of width `d`, seed 1, in float64."""
    arch = Spec("resmlp", {"d": d, "depth": DEPTH})
    config = RunConfig(method=Spec.parse(method), arch=arch, seed=1, epochs=epochs, lr=lr, dtype="float64")
    return resolve(config)


@cache
def data() -> Dataset:
    """The embedded data set."""
    return resolved("bp").source.load(None)


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A network after its last epoch."""

    resolved: ResolvedRun
    params: Leaves
    state: Leaves
    accuracy: float
    """On the whole test set."""

    @property
    def net(self) -> Network:
        return self.resolved.net

    @cached_property
    def measurements(self) -> Measurements:
        """The measurements of the network on the test samples."""
        subject = NetworkSubject(self.net, self.params, self.resolved.rule, self.state)
        labels, site = self.resolved.rule.labels(self.net.depth), self.resolved.credit_site
        return measure(subject, groups(), MeasureOptions(labels=labels, site=site))

    @property
    def quantities(self) -> Quantities:
        return quantities(self.measurements, DiagnosticThresholds())

    @property
    def cosines(self) -> list[float]:
        """Each layer's mean cosine."""
        return [layer.credit.cos.known for layer in self.quantities.layers if layer.credit is not None]


@cache
def trained(method: str, *, d: int = 32, lr: float = 1e-2) -> TrainedNetwork:
    """The network of a method after its last epoch."""
    resolved_run = resolved(method, d=d, lr=lr)
    driver = Single(resolved_run, data(), CPU)
    for _ in range(_EPOCHS):
        driver.train_epoch(lambda _: None)
    (snapshot,), (accuracy,) = driver.snapshots(), driver.test_accuracy()
    return TrainedNetwork(resolved_run, snapshot.params, snapshot.state, accuracy)


def samples(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """(inputs, labels) of the first test samples."""
    return data().test_x[:PITFALL_SAMPLES].to(dtype), data().test_y[:PITFALL_SAMPLES]


def groups() -> Groups:
    """The test samples in the groups that are measured."""
    return regroup([samples()], distinct=True)


def to_dtype(leaves: Leaves, dtype: torch.dtype) -> Leaves:
    """The same leaves in another precision."""
    return {name: leaf.to(dtype) for name, leaf in leaves.items()}


def mean_loss_gradients(net: Network, params: Leaves, x: Tensor, y: Tensor, scale: float = 1.0) -> list[Tensor]:
    """The gradient of the mean loss in h_0..h_L in the parameters' precision, as evaluation scripts compute it."""
    h = net.stem(part(params, "stem"), x).detach().requires_grad_()
    states = [h]
    for block in range(net.depth):
        states.append(net.next_state(block, part(params, f"blocks.{block}"), states[-1]))
    loss = scale * F.cross_entropy(net.head(part(params, "head"), states[-1]), y)
    return list(torch.autograd.grad(loss, states))
