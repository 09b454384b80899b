"""Draw the pictures of the diagnostics' pages: `python docs/draw.py`, less than a minute on one core.

Small networks are trained on the embedded task in float64, so that the order of summation on another processor does not
lead to another network, and measured in float32, as networks usually are. The learning rate is a hundred times the
usual one: what takes 100 epochs on CIFAR shows here within 400 steps. The drawings are written to `docs/pictures`, and
every value in them to `pictures.json` beside them; a test computes the values again.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import walkback as wb
from walkback.core.configuration import RunConfig, grid
from walkback.core.measurements import Array, Measurements
from walkback.credit.rules.bp import RULE as BACKPROP
from walkback.judge.finite_steps import Functional, functional_layers
from walkback.judge.layers import LayerCredit
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.finite_steps import measure_functional
from walkback.measure.inputs import regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import LocalLoss, NetworkSubject
from walkback.report.figures import draw
from walkback.report.study_report import Figure, Plot, Series
from walkback.runs.store import Run
from walkback.training.resolved_run import ResolvedRun, resolve

FOLDER = Path(__file__).parent / "pictures"
LIMITS = DiagnosticThresholds()
SAMPLES, FEW, PROBE_SAMPLES = 1024, 256, 2048
ARCH, EPOCHS, LR, SEED = "resmlp:d=32", 4, 0.1, 1
SETTING = f"ResMLP 32×4 on the embedded task, {EPOCHS} epochs at learning rate {LR:g}, seed {SEED}"
METHODS = {"BP": "bp", "DFA raw": "dfa:site=input", "DFA unit_error": "dfa:scale=unit_error,site=input"}
FROZEN_BASELINES = {
    "BP": "bp:shell=bp",
    "DFA raw": "dfa:shell=method,site=input",
    "DFA unit_error": "dfa:scale=unit_error,shell=method,site=input",
}
STYLES = {"BP": "BP", "DFA raw": "DFA raw", "DFA unit_error": "DFA"}
COLLAPSED = "DFA unit_error"
STEPS, STEP_SIZE = 400, 0.2
"""Training of the network with a custom backward pass."""


def _narrow(arrays: Any) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array, dtype=np.float32)) for name, array in arrays.items()}


@dataclass(frozen=True)
class Network:
    """A trained network and its measurements in float32."""

    label: str
    run: Run
    accuracy: float

    @cached_property
    def resolved(self) -> ResolvedRun:
        return resolve(RunConfig.from_json(self.run.record["config"]))

    @cached_property
    def params(self) -> dict[str, torch.Tensor]:
        return _narrow(self.run.params())

    @cached_property
    def subject(self) -> NetworkSubject:
        return NetworkSubject(self.resolved.net, self.params, self.resolved.rule, _narrow(self.run.rule_state()))

    def samples(self, count: int) -> Any:
        data = self.resolved.source.load(None)
        return regroup([(data.test_x[:count].float(), data.test_y[:count])], distinct=True)

    @cached_property
    def about(self) -> dict[str, Any]:
        return {"labels": self.resolved.rule.labels(self.resolved.net.depth), "site": self.resolved.shared_options.site}

    @cached_property
    def measurements(self) -> Measurements:
        data = self.resolved.source.load(None)
        training = data.train_x[:PROBE_SAMPLES].float(), data.train_y[:PROBE_SAMPLES]
        options = MeasureOptions(**self.about, initial=self.resolved.params(), train=training)
        return measure(self.subject, self.samples(SAMPLES), options)

    @cached_property
    def exact_at_input(self) -> Measurements:
        """The same network as if backprop's credit, the gradient at h_l, trained block l."""
        subject = NetworkSubject(self.resolved.net, self.params, BACKPROP(), {}, LocalLoss("input"))
        labels = BACKPROP().labels(self.resolved.net.depth)
        return measure(subject, self.samples(SAMPLES), MeasureOptions(labels=labels, site="input"))

    @cached_property
    def quantities(self) -> Quantities:
        return quantities(self.measurements, LIMITS)

    @cached_property
    def credits(self) -> list[LayerCredit]:
        return [layer.credit for layer in self.quantities.layers if layer.credit is not None]

    @cached_property
    def functional(self) -> tuple[Functional, ...]:
        return functional_layers(measure_functional(self.subject, self.samples(FEW), **self.about))

    def history(self, name: str) -> list[float]:
        """A detector's values, one for each epoch."""
        return [row[name] for row in self.run.log()]


Networks = dict[str, Network]


def trained(out: Path) -> tuple[Networks, Networks]:
    """The networks of all methods and their frozen baselines, each by label."""
    methods = [*METHODS.values(), *FROZEN_BASELINES.values()]
    settings: dict[str, Any] = {"arch": ARCH, "seeds": SEED, "epochs": EPOCHS, "lr": LR, "dtype": "float64"}
    results = wb.train(methods, watch=1, out=out, device="cpu", **settings)
    found = [
        Network(label, wb.load(result.path), float(result.test_acc or 0))
        for label, result in zip([*METHODS, *FROZEN_BASELINES], results, strict=True)
    ]
    half = len(METHODS)
    return {net.label: net for net in found[:half]}, {net.label: net for net in found[half:]}


class FeedbackFunction(torch.autograd.Function):
    """A Linear as libraries for feedback alignment write it: the backward pass uses a fixed random matrix."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, feedback: torch.Tensor) -> Any:
        ctx.save_for_backward(x, feedback)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, feedback = ctx.saved_tensors
        return grads[0] @ feedback, grads[0].t() @ x, grads[0].sum(0), None


class FeedbackLinear(torch.nn.Linear):
    def __init__(self, fan_in: int, fan_out: int):
        super().__init__(fan_in, fan_out)
        self.register_buffer("feedback", torch.randn(fan_out, fan_in) / fan_in**0.5)

    def forward(self, x: torch.Tensor) -> Any:
        return FeedbackFunction.apply(x, self.weight, self.bias, self.feedback)


def feedback_net() -> torch.nn.Sequential:
    """A plain network of feedback layers, without skips: stem, four blocks, head."""
    torch.manual_seed(SEED)
    blocks = [torch.nn.Sequential(torch.nn.Tanh(), FeedbackLinear(32, 32)) for _ in range(4)]
    return torch.nn.Sequential(FeedbackLinear(16, 32), *blocks, torch.nn.Tanh(), FeedbackLinear(32, 10)).double()


def train_by_own_backward(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP_SIZE)
    for step in range(STEPS):
        rows = slice(step * 128 % len(x), step * 128 % len(x) + 128)
        optimiser.zero_grad()
        F.cross_entropy(model(x[rows]), y[rows]).backward()
        optimiser.step()


def cosine_by_grad(model: torch.nn.Sequential, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """The mean cosine of the credit with what autograd returns, as code computes it that takes that as the gradient."""
    states = [model[0](x)]
    for block in model[1:-2]:
        states.append(block(states[-1]))
    for state in states:
        state.retain_grad()
    loss = F.cross_entropy(model[-2:](states[-1]), y, reduction="sum")
    reference = torch.autograd.grad(loss, states, retain_graph=True)
    loss.backward()
    return [float(F.cosine_similarity(h.grad, g).mean()) for h, g in zip(states, reference, strict=True)]


def series(net: Network, y: Sequence[float | None], **more: Any) -> Series:
    return Series(net.label, [float(index) for index in range(len(y))], list(y), style=STYLES[net.label], **more)


def by_layer(title: str, y_label: str, lines: Sequence[Series], **more: Any) -> Plot:
    deepest = max(len(line.x) for line in lines)
    return Plot(title, "hidden state", y_label, tuple(lines), ticks=tuple(f"h_{i}" for i in range(deepest)), **more)


def by_epoch(title: str, y_label: str, nets: Networks, name: str, **more: Any) -> Plot:
    lines = tuple(series(net, net.history(name), mark="both") for net in nets.values())
    return Plot(title, "epoch", y_label, lines, ticks=tuple(str(epoch + 1) for epoch in range(EPOCHS)), **more)


def growth(nets: Networks, frozen: Networks) -> Figure:
    limit = LIMITS.h_norm_explosion_ratio
    norms = [series(n, [x.hidden_norm.known for x in n.quantities.layers], mark="both") for n in nets.values()]
    return Figure(
        "growth",
        "The hidden state outgrows its scale",
        (
            by_layer("after the last epoch", "‖h‖", norms, y_log=True),
            by_epoch("largest growth of a block", "ρ", nets, "growth", y_log=True, levels={f"D1: {limit:g}": limit}),
        ),
        "Left: the mean length of each hidden state. Right: growth (D1) after each epoch. "
        + ", ".join(f"{net.label} ends at ρ = {net.history('growth')[-1]:.3g}" for net in nets.values())
        + f". {SETTING}.",
    )


def reference(nets: Networks, frozen: Networks) -> Figure:
    floor, eps = LIMITS.g_norm_floor, LIMITS.cosine_eps
    norms = [series(n, [x.grad_norm_128.known for x in n.quantities.layers], mark="both") for n in nets.values()]
    levels = {f"D2: {floor:g}": floor, f"clamp: {eps:g}": eps}
    low = nets[COLLAPSED]
    direction, clamp = low.quantities.top.direction, low.quantities.top.clamp
    lengths = np.logspace(-10, -6, 33)
    unit = torch.eye(8, dtype=torch.float64)[:1]
    read = [float(F.cosine_similarity(length * unit, length * unit)) for length in lengths]
    cosines = (
        Series("F.cosine_similarity", lengths.tolist(), read, style="DFA"),
        Series("without ε", lengths.tolist(), [1.0] * len(lengths), style="BP"),
    )
    return Figure(
        "reference",
        "The deepest reference gradient collapses",
        (
            by_layer("gradient of the loss, @128", "‖g‖ @128", norms, y_log=True, levels=levels),
            Plot("a vector against itself", "its length", "cosine", cosines, x_log=True),
        ),
        f"Left: the mean gradient at each hidden state; {low.label} ends at ‖g_L‖ = "
        f"{low.quantities.top.grad_norm_128.known:.2g} @128, under the floor. Its direction is nevertheless "
        f"{direction.status}: float64 agrees with float32 to cosine {LIMITS.direction_valid_cos:g} for "
        f"{direction.share_valid:.1%} of samples, and {clamp.share:.1%} of them are under the clamp. "
        f"Right: the plain cosine function of a vector and itself. {SETTING}.",
    )


def own_backward(nets: Networks, frozen: Networks) -> Figure:
    data = nets["BP"].resolved.source.load(None)
    x, y = data.test_x[:SAMPLES].double(), data.test_y[:SAMPLES]
    model, plots, accuracies = feedback_net(), [], []
    for title in ("before training", "after training"):
        found = wb.diagnose(copy.deepcopy(model).float(), [(x, y)]).measurements.arrays
        true, wide = found["credit_cos"].mean(1), LIMITS.null_z * found["null_haar_std"]
        places = [float(layer) for layer in range(len(true))]
        lines = (
            Series(
                f"random rotation, ±{LIMITS.null_z:g} σ", places, [0.0] * len(true), "null", list(-wide), list(wide)
            ),
            Series("against .grad", places, cosine_by_grad(model, x, y), "BP", mark="both"),
            Series("against the derivative", places, list(true), "FA", mark="both"),
        )
        plots.append(by_layer(title, "cosine", lines))
        accuracies.append(float(found["correct"].mean()))
        if title == "before training":
            train_by_own_backward(model, data.train_x.double(), data.train_y)
    return Figure(
        "own_backward",
        "A custom backward pass is taken for the gradient",
        tuple(plots),
        "The credit of feedback alignment, written as a custom autograd.Function. Code that reads the reference from "
        "autograd compares the credit with itself: +1 at every state. Against the derivative of the forward pass the "
        "cosine is inside its null before training and above it afterwards. A plain network of 4 blocks of width 32 on "
        f"the embedded task, {STEPS} steps of SGD at learning rate {STEP_SIZE:g}; accuracy {accuracies[0]:.2f} before "
        f"and {accuracies[1]:.2f} after training.",
    )


def used(nets: Networks, frozen: Networks) -> Figure:
    plots, ratios = [], []
    for label in ("DFA raw", "DFA unit_error"):
        found = nets[label].exact_at_input.arrays
        blocks = range(len(found["used_cos"]))
        places, ticks = [float(block) for block in blocks], tuple(f"block {block}" for block in blocks)

        def line(title: str, style: str, values: Array, places: list[float] = places) -> Series:
            return Series(title, places, list(values[: len(places)].mean(1)), style, mark="both")

        lines = (
            line("credit_cos", "BP", found["credit_cos"]),
            line("used_cos", "FA", found["used_cos"]),
            line("update_cos", "DFA", found["update_cos"]),
        )
        plots.append(Plot(f"weights trained by {label}", "", "cosine", lines, ticks=ticks))
        ratios.append(f"{label} {np.median(found['credit_ratio'][0]):.3g}")
    return Figure(
        "used",
        "Exact credit, used at the block's input",
        tuple(plots),
        "Block l gets the exact gradient at its input, g_l, as its credit. credit_cos compares it with g_l and is 1. "
        "used_cos compares it with the gradient at the block's output, g_l+1, and update_cos compares the block's "
        "parameter gradient with that of the mean loss: both are far below 1 at block 0. credit_ratio at block 0: "
        + ", ".join(ratios)
        + f". {SAMPLES} samples. {SETTING}.",
    )


def skip_path(nets: Networks, frozen: Networks) -> Figure:
    plots, sentences = [], []
    for method, title in (("kp", "random feedback"), ("usf", "feedback with the weights' signs")):
        made = resolve(grid(method, arch=ARCH, seeds=SEED, dtype="float64")[0])
        subject = NetworkSubject(made.net, made.params(), made.rule, made.state())
        labels = made.rule.labels(made.net.depth)
        found = measure(subject, nets["BP"].samples(SAMPLES), MeasureOptions(labels=labels))
        whole, partial = found.arrays["credit_cos"].mean(1), found.arrays["partial_cos"][:-1].mean(1)
        wide = LIMITS.null_z * found.arrays["null_partial_std"][:-1]
        places = [float(layer) for layer in range(len(whole))]
        lines = (
            Series(
                f"rotation of the partial credit, ±{LIMITS.null_z:g} σ",
                places[:-1],
                [0.0] * len(wide),
                "null",
                list(-wide),
                list(wide),
            ),
            Series("cosine", places, list(whole), "DFA", mark="both"),
            Series("partial cosine", places[:-1], list(partial), "FA", mark="both"),
        )
        plots.append(by_layer(title, "cosine", lines))
        claim = judge(found).claims["alignment"]
        sentences.append(f"{method} reads “{claim.name or claim.reason.split(':')[0]}”")
    return Figure(
        "skip_path",
        "The skip path carries the cosine of untrained feedback",
        tuple(plots),
        "Untrained networks; the feedback acts in every Linear of a block. Left: random feedback (kp before training); "
        "the skips carry g_L to every state, so the cosine is far above zero, and without g_L nothing is left. Right: "
        "feedback with the signs of the weights (usf). " + "; ".join(sentences) + f". At h4 the credit is exact. "
        f"{SAMPLES} samples, {ARCH.split(':')[0]} of width 32 with 4 blocks, seed {SEED}.",
    )


def lesions(nets: Networks, frozen: Networks) -> Figure:
    shown = (nets["BP"], nets[COLLAPSED])

    def accuracies(net: Network, name: str) -> list[float]:
        return [float(value) for value in net.measurements.arrays[name].mean(1)]

    whole = {net.label: float(net.measurements.arrays["correct"].mean()) for net in shown}
    skipped = [series(net, [whole[net.label], *accuracies(net, "lesion_skip")], mark="bars") for net in shown]
    probes = [series(net, accuracies(net, "probe_correct"), mark="both") for net in shown]
    untrained = accuracies(shown[0], "probe_initial")
    places = [float(layer) for layer in range(len(untrained))]
    last = {net.label: probes[index].y[-1] for index, net in enumerate(shown)}
    ticks = ("none", *(str(block) for block in range(len(untrained) - 1)))
    return Figure(
        "lesions",
        "Blocks skipped, and states probed",
        (
            Plot("accuracy with one block skipped", "block that is skipped", "", tuple(skipped), ticks=ticks),
            by_layer(
                "accuracy of a linear probe", "", [*probes, Series("untrained", places, untrained, "null", mark="both")]
            ),
        ),
        "Left: accuracy of the whole network and with each block skipped. Right: accuracy of a linear probe on each "
        "hidden state, beside the same on the untrained network. On the last state: "
        + ", ".join(f"{label} {value:.2f}" for label, value in last.items())
        + f", untrained {untrained[-1]:.2f}. The states of {COLLAPSED} have exploded, so its skipped networks are far "
        f"from what was trained. {SAMPLES} test samples, {PROBE_SAMPLES} training samples for the probes. {SETTING}.",
    )


def direction(nets: Networks, frozen: Networks) -> Figure:
    ceiling, floor = LIMITS.stability_drift_ceiling, LIMITS.g_norm_floor
    first = {net.label: net.history("direction")[0] for net in nets.values()}
    return Figure(
        "direction",
        "All samples push the deepest state in the same direction",
        (
            by_epoch("mean pairwise cosine", "drift (c)", nets, "direction", levels={f"(c): {ceiling:g}": ceiling}),
            by_epoch("deepest gradient", "‖g_L‖ @128", nets, "grad_top", y_log=True, levels={f"D2: {floor:g}": floor}),
        ),
        "Left: drift (c) after each epoch; after the first, "
        + ", ".join(f"{label} {value:.2f}" for label, value in first.items())
        + f". Right: the deepest gradient of the same networks. Drift (c) is high early, also for backprop, and falls "
        f"again while {COLLAPSED} stays collapsed: it names a phase and decides no verdict. {SETTING}.",
    )


def depth(nets: Networks, frozen: Networks) -> Figure:
    labels = tuple(nets)
    places = [float(index) for index in range(len(labels))]
    bars = (
        Series("trained", places, [net.accuracy for net in nets.values()], mark="bars"),
        Series("frozen baseline", places, [frozen[label].accuracy for label in labels], mark="bars"),
        Series("bp frozen baseline", places, [frozen["BP"].accuracy] * len(labels), mark="bars"),
    )
    margins = {label: 100 * (nets[label].accuracy - frozen[label].accuracy) for label in labels}
    harder = {label: 100 * (nets[label].accuracy - frozen["BP"].accuracy) for label in labels}
    return Figure(
        "depth",
        "Trained blocks against random ones",
        (Plot("test accuracy", "", "", bars, ticks=labels),),
        "Each method beside the same network with its blocks frozen at random, the rest trained by the method "
        "(frozen baseline) or by backprop (bp frozen baseline). Margins over the two, in percentage points: "
        + ", ".join(f"{label} {margins[label]:+.1f} and {harder[label]:+.1f}" for label in labels)
        + f". {SETTING}.",
        columns=1,
    )


AGGREGATES = {
    "A1": "a1",
    "A2": "a2",
    "A3": "a3",
    "A4": "a4",
    "deep": "deep_mean",
    "papers": "deep_mean_papers",
}


def concentration(nets: Networks, frozen: Networks) -> Figure:
    shown = [net for label, net in nets.items() if label != "BP"]
    cosines = [series(net, [credit.cos.known for credit in net.credits], mark="bars") for net in shown]
    values = {
        net.label: [getattr(net.quantities.aggregates, field).known for field in AGGREGATES.values()] for net in shown
    }
    sums = tuple(series(net, values[net.label], mark="bars") for net in shown)
    sentences = []
    for net in shown:
        found = net.quantities.aggregates
        sentences.append(
            f"{net.label}: κ = {found.concentration.known:.2f} at h_{found.concentration_layer}, and four aggregates "
            f"from {min(values[net.label][:4]):+.3f} to {max(values[net.label][:4]):+.3f}"
        )
    return Figure(
        "concentration",
        "One layer accounts for the alignment",
        (
            by_layer("cosine at each layer", "cosine", cosines),
            Plot("the same, as one number", "", "", sums, ticks=tuple(AGGREGATES)),
        ),
        "; ".join(sentences) + f" (A1 to A4 of one network on the same samples). {SETTING}.",
    )


def alignment(nets: Networks, frozen: Networks) -> Figure:
    z = LIMITS.null_z
    plots, sentences = [], []
    for net in nets.values():
        if net.label == "BP":
            continue
        places = [float(index) for index in range(len(net.credits))]
        wide = [z * float(credit.null_std or 0) for credit in net.credits]
        drawn = [credit.fresh for credit in net.credits if credit.fresh is not None]
        lines = [
            Series(
                f"random rotation, ±{z:g} σ", places, [0.0] * len(wide), "null", [-x for x in wide], wide, mark="line"
            ),
            Series(
                f"fresh B, ±{z:g} σ",
                places,
                [fresh.mean for fresh in drawn],
                "EP",
                [fresh.mean - z * fresh.std for fresh in drawn],
                [fresh.mean + z * fresh.std for fresh in drawn],
                mark="points",
            ),
            Series("own B", places, [credit.cos.known for credit in net.credits], "DFA", mark="both"),
        ]
        plots.append(by_layer(net.label, "cosine", lines))
        found = net.quantities.aggregates
        sentences.append(f"{net.label}: deep_mean {found.deep_mean.known:+.3f}, z = {found.deep_mean_z.known:.1f}")
    return Figure(
        "alignment",
        "Cosines and what they would be by chance",
        tuple(plots),
        "Each layer's mean cosine, the range of a random rotation of the same credits, and freshly drawn feedback. "
        + "; ".join(sentences)
        + f". {SAMPLES} samples. {SETTING}.",
    )


def functional(nets: Networks, frozen: Networks) -> Figure:
    net = nets[COLLAPSED]
    raw = nets["DFA raw"]

    def line(label: str, style: str, name: str) -> Series:
        means = [getattr(layer, name).mean.known for layer in net.functional]
        return Series(label, [float(i) for i in range(len(means))], means, style, mark="both")

    correlations = [
        line(net.label, STYLES[net.label], "rho"),
        line("true gradient", "BP", "rho_gradient"),
        line("random vector", "null", "rho_random"),
    ]
    gains = [series(n, [layer.efficiency.mean.value for layer in n.functional], mark="both") for n in (raw, net)]
    losses = {n.label: (n.run.log()[0]["loss"], n.run.log()[-1]["loss"]) for n in nets.values()}
    return Figure(
        "functional",
        "What a finite step does",
        (
            by_layer(f"correlation, {net.label}", "ρ", correlations),
            by_layer("gain of a step, share of the gradient's", "efficiency", gains),
        ),
        f"Left: how well ⟨a, v⟩ predicts the change of the loss along random directions v, for {net.label}, with both "
        f"controls. Right: the share of the gradient's gain that a step along the credit gets; below zero the step "
        f"raises the loss. {FEW} samples. Training loss, first and last epoch: "
        + ", ".join(f"{label} {first:.3g} → {last:.3g}" for label, (first, last) in losses.items())
        + f". {SETTING}.",
    )


PICTURES: tuple[Callable[[Networks, Networks], Figure], ...] = (
    growth,
    reference,
    direction,
    depth,
    concentration,
    alignment,
    functional,
    own_backward,
    used,
    skip_path,
    lesions,
)


def figures() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        nets, frozen = trained(Path(folder))
        return [picture(nets, frozen) for picture in PICTURES]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    drawn = figures()
    for figure in drawn:
        (FOLDER / f"{figure.name}.svg").write_bytes(draw(figure, "svg"))
    values = {figure.name: figure.to_json() for figure in drawn}
    (FOLDER / "pictures.json").write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
