"""The oracle controls against autograd: exact credit, exact credit at the input, exact direction with a rule's norm."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.func import grad

import tiny
from walkback.auditing.measure_run import measure_network
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.credit import RULES
from walkback.credit.rule import CreditRule
from walkback.data.feed import Feed, TestSet
from walkback.judge.report import judge
from walkback.nets import ARCHS
from walkback.nets.network import Leaves, part
from walkback.training.fleet import Fleet
from walkback.training.resolved_run import ResolvedRun
from walkback.training.single import Single
from walkback.training.step import StepOutput, StepSpec, step

PAIRS = pytest.mark.parametrize(("rule", "net"), tiny.pairs())
NETS = pytest.mark.parametrize("net", ARCHS.names())


def batch_of(resolved: ResolvedRun) -> tuple[torch.Tensor, torch.Tensor]:
    feed = Feed(resolved.source.load(None), resolved.config.batch, resolved.augment, resolved.dtype, tiny.CPU)
    return feed.take({name: values[0] for name, values in feed.order(resolved.config.seed, 0).items()})


def params_of(resolved: ResolvedRun) -> Leaves:
    """Random parameters without the special initial values (zero biases, unit norms, small W2)."""
    draws = torch.Generator().manual_seed(5)
    return {n: v + 0.3 * torch.randn(v.shape, generator=draws, dtype=v.dtype) for n, v in resolved.params().items()}


def numbers(values: dict[str, float]) -> Leaves:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def step_of(resolved: ResolvedRun) -> StepOutput:
    x, y = batch_of(resolved)
    spec, noise = StepSpec.of(resolved), resolved.noise(0, 0)
    return step(spec, params_of(resolved), resolved.state(), numbers(resolved.knobs()), x, y, noise)


def gradients_of(method: str, net: str) -> Leaves:
    return step_of(tiny.resolved(method, arch=tiny.arch(net))).gradients


class ByHand:
    """States, gradients in them and errors of the first batch by autograd, and gradients of local losses written
    out."""

    def __init__(self, net: str):
        self.resolved = tiny.resolved("bp", arch=tiny.arch(net))
        self.net, self.params = self.resolved.net.in_training(), params_of(self.resolved)
        self.x, self.y = batch_of(self.resolved)
        h = self.net.stem(part(self.params, "stem"), self.x).requires_grad_()
        states = [h]
        for block in range(self.net.depth):
            states.append(states[-1] + self.net.branch(part(self.params, f"blocks.{block}"), states[-1]))
        logits = self.net.head(part(self.params, "head"), states[-1])
        losses = tiny.sample_losses(logits, self.y)
        self.g = torch.autograd.grad(losses.sum(), states)
        self.states = [state.detach() for state in states]
        self.error = (logits.detach().softmax(-1) - F.one_hot(self.y, self.net.classes)) / max(1, self.y[0].numel())

    def scaled(self, factors: torch.Tensor) -> list[torch.Tensor]:
        return [g * factors.reshape(-1, *(1,) * (g.ndim - 1)) for g in self.g]

    def gradients(self, stem: torch.Tensor, blocks: list[torch.Tensor], penalty: float = 0.0) -> Leaves:
        """Gradients of stem and blocks, with the credit given for each."""

        def loss(leaves: Leaves) -> torch.Tensor:
            total = (self.net.stem(part(leaves, "stem"), self.x) * stem).sum()
            for index, credit in enumerate(blocks):
                f = self.net.branch(part(leaves, f"blocks.{index}"), self.states[index])
                total = total + (f * credit).sum() + penalty * (f**2).sum()
            return total / len(self.y)

        return grad(loss)({n: v for n, v in self.params.items() if not n.startswith("head.")})


def without_head(gradients: Leaves) -> Leaves:
    return {name: leaf for name, leaf in gradients.items() if not name.startswith("head.")}


@NETS
@pytest.mark.parametrize("settings", ["", "penalty=0.01", "penalty=0.5,penalty_reduction=mean"])
@pytest.mark.parametrize("rule", ["fa", "dfa"])
def test_exact_credit_in_place_of_a_rules_is_backprop(rule, net, settings):
    truth = gradients_of(f"bp:{settings}", net)
    for site in ("output", "input"):
        assert tiny.distance(gradients_of(f"{rule}:credit=exact,site={site},{settings}", net), truth) < 1e-12


@PAIRS
def test_the_exact_oracle_of_every_rule_is_backprop(rule, net):
    assert tiny.distance(gradients_of(f"{rule}:credit=exact", net), gradients_of("bp", net)) < 1e-12


@NETS
@pytest.mark.parametrize("rule", ["dfa", "sdfa"])
def test_a_normalised_error_divides_each_samples_exact_gradient_by_its_error(rule, net):
    hand = ByHand(net)
    g = hand.scaled(1 / hand.error.flatten(1).norm(dim=-1))
    for site in ("output", "input"):
        found = gradients_of(f"{rule}:scale=unit_error,credit=exact,site={site}", net)
        assert tiny.distance(without_head(found), hand.gradients(g[0], g[1:])) < 1e-11


def test_a_zero_error_gives_zero_exact_credit():
    rule = tiny.resolved("dfa:scale=unit_error,credit=exact").rule.inner
    error = torch.tensor([[0.0, 0.0], [0.6, -0.8]], dtype=torch.float64)
    trace = type("Errors", (), {"error": error})()
    bound = rule.bind({"scale": torch.tensor(1.0)})
    assert bound.error_scale(trace).tolist() == pytest.approx([0, 1])
    assert rule.bind({"scale": torch.tensor(0.0)}).error_scale(trace).tolist() == [1, 1]


@pytest.mark.parametrize("rule", RULES.names())
def test_rules_say_that_they_normalise_the_error_where_they_scale_it(rule):
    plain = RULES.get(rule)()
    error = torch.tensor([[0.3, -0.1], [0.6, -0.8]], dtype=torch.float64)
    trace = type("Errors", (), {"error": error})()
    for variant in (plain, replace(plain, scale="unit_error")) if hasattr(plain, "scale") else (plain,):
        factors = variant.bind(numbers(variant.knobs())).error_scale(trace)
        assert variant.normalises_error == (factors is not None and bool((factors != 1).any()))


@NETS
@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_backprop_at_the_input_gives_block_l_the_gradient_of_its_input_state(net, penalty):
    hand = ByHand(net)
    found = gradients_of(f"bp:site=input,penalty={penalty}", net)
    assert tiny.distance(without_head(found), hand.gradients(hand.g[0], hand.g[:-1], penalty)) < 1e-11
    assert tiny.distance(found, gradients_of(f"bp:penalty={penalty}", net)) > 1e-3


def own_credits(resolved: ResolvedRun) -> tuple[torch.Tensor, ...]:
    """The method's own credits on its first batch."""
    from walkback.credit.trace import trace

    net, state, noise = resolved.net.in_training(), resolved.state(), resolved.noise(0, 0)
    rule = resolved.rule.bind(numbers(resolved.rule.knobs()))
    seen = trace(net, params_of(resolved), *batch_of(resolved), rule.linears(net, state, noise), with_input=True)
    return rule.credit(net, params_of(resolved), state, seen, noise)[0]


def rows(values: torch.Tensor) -> torch.Tensor:
    return values.flatten(1)


@PAIRS
def test_the_direction_oracle_has_backprops_directions_and_the_methods_norms(rule, net):
    hand = ByHand(net)
    for site in RULES.get(rule).sites:
        own = own_credits(tiny.resolved(f"{rule}:site={site}", arch=tiny.arch(net)))
        found = own_credits(tiny.resolved(f"{rule}:site={site},credit=direction", arch=tiny.arch(net)))
        used = own if site == "output" else (own[0], *own[:-1])
        for credit, gradient, method in zip(found, hand.g, used, strict=True):
            torch.testing.assert_close(rows(credit).norm(dim=-1), rows(method).norm(dim=-1), rtol=1e-9, atol=0)
            cosines = F.cosine_similarity(rows(credit), rows(gradient), dim=-1, eps=0)
            assert cosines[rows(method).norm(dim=-1) > 0].sub(1).abs().max() < 1e-12


@pytest.mark.parametrize("rule", ["dfa", "usf", "state_bridge"])
def test_the_direction_oracle_trains_blocks_by_the_gradient_of_their_output(rule):
    hand = ByHand("resmlp")
    site = RULES.get(rule).sites[-1]
    resolved = tiny.resolved(f"{rule}:site={site},credit=direction,penalty=0.2")
    credits = own_credits(resolved)
    found = without_head(step_of(resolved).gradients)
    assert tiny.distance(found, hand.gradients(credits[0], list(credits[1:]), 0.2)) < 1e-11


def test_norms_whose_squares_underflow_are_kept():
    from walkback.credit.oracle import _with_norm_of

    credit = torch.tensor([[3e-30, 4e-30], [0.0, 0.0], [1.0, 0.0]])
    direction = torch.tensor([[0.0, 2e-31], [1.0, 1.0], [0.0, 0.0]])
    assert _with_norm_of(credit, direction).tolist() == [pytest.approx([0, 5e-30], rel=1e-6, abs=0), [0, 0], [0, 0]]


FLEETS = [
    ["dfa:credit=exact", "dfa:scale=unit_error,credit=exact,penalty=0.01", "dfa:credit=exact,shell=method"],
    ["dfa:scale=unit_error,credit=direction", "dfa:credit=direction", "dfa:credit=direction,shell=method"],
    ["dfa:site=input,credit=direction", "dfa:site=input,scale=unit_error,credit=direction,penalty=0.1"],
    ["state_bridge:site=input,credit=direction", "state_bridge:site=input,credit=direction,shell=method"],
    ["kp:credit=direction", "kp:credit=direction,shell=method"],
    ["brsf:credit=direction", "brsf:credit=direction,penalty=0.1"],
    ["node_perturbation:credit=direction", "node_perturbation:credit=direction,penalty=0.1"],
]


@pytest.mark.parametrize("methods", FLEETS, ids=lambda methods: methods[0])
def test_a_fleet_of_oracles_equals_its_models_trained_alone(methods):
    runs = [tiny.resolved(method, seeds=seed, weight_decay=0.5) for method in methods for seed in (1, 2)]
    data = runs[0].source.load(None)
    together = tiny.train(Fleet(runs, data, tiny.CPU), 2)
    for resolved, in_fleet in zip(runs, together, strict=True):
        (alone,) = tiny.train(Single(resolved, data, tiny.CPU), 2)
        assert tiny.distance(in_fleet.params, alone.params) < 1e-11, resolved.method
        if alone.state:
            assert tiny.distance(in_fleet.state, alone.state) < 1e-11, resolved.method


def test_an_oracle_trained_alone_equals_backprop_after_training():
    ends = [
        tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 2)[0].params
        for resolved in (tiny.resolved("bp"), tiny.resolved("fa:site=input,credit=exact"))
    ]
    assert tiny.distance(*ends) < 1e-10


@pytest.mark.parametrize("method", ["state_bridge:credit=exact", "state_bridge:credit=direction"])
def test_the_inner_rule_learns_on(method):
    resolved = tiny.resolved(method)
    (end,) = tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 1)
    for name, leaf in resolved.state().items():
        assert not torch.equal(end.state[name], leaf), name


def test_an_oracle_forwards_what_the_rule_says_of_itself():
    net = "vit_mini"
    inner = tiny.resolved("dfa:credit_tokens=cls,b_scale=2", arch=tiny.arch(net))
    oracle = tiny.resolved("dfa:credit_tokens=cls,b_scale=2,credit=exact", arch=tiny.arch(net))
    assert oracle.rule.untrained(oracle.net) == inner.rule.untrained(inner.net) != ()
    assert oracle.rule.knobs() == inner.rule.knobs()
    assert tiny.same_bits(oracle.state(), inner.state())
    assert tiny.resolved("state_bridge:bridge_lr=0.5,credit=exact").rule.own_lr == 0.5
    assert tiny.resolved("kp:credit=direction").rule.updates_state()
    assert not tiny.resolved("dfa:credit=direction").rule.updates_state()
    with pytest.raises(InputError, match="state_bridge"):
        tiny.resolved("state_bridge:credit=exact", arch=tiny.arch(net))


def test_every_method_of_a_rule_that_an_oracle_should_forward_is_its_own():
    """A method added to rules later must be forwarded or given a meaning of its own; the sites and Linears are its
    own by their defaults."""
    from walkback.credit.oracle import OracleRule

    defaults = {"linears", "normalises_error", "error_scale"}
    public = {name for name in vars(CreditRule) if not name.startswith("_")} - {"through_blocks"}
    assert public - vars(OracleRule).keys() == defaults


def test_equilibrium_propagations_objection_needs_its_own_logs():
    exact, direction = (tiny.resolved(f"ep:credit={kind}").rule for kind in ("exact", "direction"))
    assert exact.objection({"loss": 1.0}) is None
    assert "zero credit" in direction.objection({"ep_zero": 1.0})


def measured(method: str) -> Measurements:
    """A network at random parameters, measured with the method's rule and local loss."""
    resolved = tiny.resolved(method, data="prototypes:train=96,test=640,dim=6,prototypes=8,labels=4")
    tests = TestSet(resolved.source.load(None), resolved.dtype, tiny.CPU)
    return measure_network(resolved, params_of(resolved), resolved.state(), tests)


METHODS = ["dfa:site=input", "fa:site=input", "credit_bridge:site=input,penalty=0.01", "usf"]


@pytest.mark.parametrize("method", METHODS)
def test_an_exact_oracle_is_measured_as_aligned_where_it_is_used_and_in_its_updates(method):
    found = measured(f"{method}{',' if ':' in method else ':'}credit=exact")
    for name in ("used_cos", "update_cos", "update_cos_stem", "credit_ratio"):
        np.testing.assert_allclose(found.arrays[name], 1, atol=1e-9)
    assert (found.facts["site"], set(found.facts["labels"])) == ("output", {"exact"})


@pytest.mark.parametrize("method", METHODS)
def test_a_direction_oracle_is_measured_with_the_methods_credit_ratio(method):
    own, found = measured(method), measured(f"{method}{',' if ':' in method else ':'}credit=direction")
    np.testing.assert_allclose(found.arrays["used_cos"], 1, atol=1e-9)
    np.testing.assert_allclose(found.arrays["credit_ratio"], own.arrays["credit_ratio"], rtol=1e-9)
    assert (own.arrays["used_cos"] < 0.999).any()


def test_a_normalised_exact_gradient_is_aligned_for_every_sample_but_weighs_them_otherwise():
    found = measured("dfa:scale=unit_error,site=input,credit=exact")
    np.testing.assert_allclose(found.arrays["used_cos"], 1, atol=1e-9)
    assert (found.arrays["update_cos"] < 1 - 1e-6).all()
    assert (found.arrays["update_cos"] > 0.5).all()


def test_backprop_at_the_input_is_exact_at_every_state_and_not_aligned_where_it_is_used():
    found = measured("bp:site=input")
    np.testing.assert_allclose(found.arrays["credit_cos"], 1, atol=1e-9)
    assert (found.facts["site"], set(found.facts["labels"])) == ("input", {"exact"})
    assert (found.arrays["used_cos"] < 0.999).any()
    assert not any(block.is_exact for block in judge(found).quantities.blocks)
