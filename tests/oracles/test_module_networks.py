"""An nn.Module as a network: the same numbers as a hand-written network, an ordinary torch loop, and autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp, vmap
from torch.nn.grad import conv2d_input, conv2d_weight

import module_nets
import tiny
from walkback.credit import local
from walkback.credit.feedback import mix, send_down
from walkback.credit.perlinear import feedback_convolution
from walkback.credit.rule import CreditRule, transport
from walkback.credit.trace import trace
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import Convolution, plain_linear
from walkback.training.fleet import Fleet
from walkback.training.single import Single

NETS = [
    module_nets.PlainResMLP,
    module_nets.BranchMLP,
    module_nets.PlainMLP,
    module_nets.TiedInside,
    module_nets.TinyResNet,
    module_nets.TinyViT,
    module_nets.TinyGPT,
]
ON_ALL = pytest.mark.parametrize("module", NETS, ids=lambda module: module.__name__)
WITHOUT_EFFECT = ("c_attn.bias", "in_proj_bias")
"""The biases of attention's keys are in them: their gradients are mere rounding, which AdamW makes steps of."""


def with_effect(leaves):
    return {name: leaf for name, leaf in leaves.items() if not name.endswith(WITHOUT_EFFECT)}


@pytest.mark.parametrize(
    "method",
    [
        "bp",
        "dfa",
        "fa",
        "kp",
        "fa_layers:penalty=0.01",
        "dfa:scale=unit_error,site=input,penalty=0.01",
        pytest.param("dfa:shell=method", marks=pytest.mark.slow),
        "dfa:scale=unit_error,credit=exact",
        pytest.param("fa:credit=direction", marks=pytest.mark.slow),
        pytest.param("local", marks=pytest.mark.slow),
        pytest.param("node_perturbation", marks=pytest.mark.slow),
    ],
)
def test_a_plain_module_trains_to_the_numbers_of_the_hand_written_network(method):
    own = tiny.resolved(method, weight_decay=0.1)
    copy = tiny.resolved(method, arch=module_nets.PlainResMLP, weight_decay=0.1)
    names = {
        name: name.replace("stem.", "stem.stem.", 1) if name.startswith("stem.") else name for name in own.params()
    }
    data = own.source.load(None)
    single, of_module = Single(own, data, tiny.CPU), Single(copy, data, tiny.CPU)
    (start,) = single.snapshots()
    (first,) = of_module.snapshots()
    assert tiny.same_bits(first.state, start.state)
    assert first.params.keys() == set(names.values())
    of_module.restore([replace(first, params={names[name]: leaf for name, leaf in start.params.items()})])
    (expected,), (found,) = tiny.train(single, 2), tiny.train(of_module, 2)
    assert not tiny.same_bits(expected.params, start.params)
    assert tiny.distance({name: found.params[names[name]] for name in names}, expected.params) < 1e-10


@ON_ALL
def test_backprop_through_the_parts_is_autograd_through_the_module(module):
    """Also with the feedback that is the transposed weight, through every kind of layer."""
    for rule in ("bp", "sham"):
        resolved = tiny.resolved(rule, arch=module)
        net, data = resolved.net, resolved.source.load(None)
        x, y = torch.randn(6, *net.input_shape, dtype=torch.float64), data.train_y[:6]
        noise = {name: mask[:6] for name, mask in resolved.noise(0, 0).items()}
        bound = net.in_training().with_noise(noise)
        params = resolved.params()
        seen = trace(bound, params, x, y, resolved.rule.linears(bound, {}, {}), with_input=True)
        credits, _ = resolved.rule.credit(bound, params, {}, seen, {})
        found = local.gradients(seen, credits, "output", None, "sum")

        # The module itself, called as a whole, with torch's own operations except for the masks.
        leaves = {name: leaf.clone().requires_grad_(name not in net.buffers) for name, leaf in params.items()}
        logits = whole_module(module, resolved, leaves, x, noise)
        leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        truth = torch.autograd.grad(F.cross_entropy(logits, y), list(leaves.values()), allow_unused=True)
        largest = max(float(g.abs().max()) for g in truth if g is not None)
        for (name, leaf), g in zip(leaves.items(), truth, strict=True):
            right = torch.zeros_like(leaf) if g is None else g
            torch.testing.assert_close(found[name], right, rtol=1e-9, atol=1e-12 * largest)


def whole_module(module, resolved, leaves, x, noise):
    made, names = module().double().train(), resolved.net.facts.names
    if module is module_nets.TinyViT:
        # Dropout at last: torch's encoder layer draws its masks itself, so they are given to F.dropout one by one.
        return resolved.net.in_training().with_noise(noise).forward(leaves, x)
    return torch.func.functional_call(made, {names[name]: leaf for name, leaf in leaves.items()}, (x,))


def test_dropout_masks_act_where_torch_would_drop_and_keep_the_mean():
    resolved = tiny.resolved("bp", arch=module_nets.TinyViT)
    net = resolved.net
    noise, again, later = resolved.noise(0, 0), resolved.noise(0, 0), resolved.noise(0, 1)
    assert tiny.same_bits(noise, again)
    assert not any(torch.equal(mask, later[name]) for name, mask in noise.items())
    assert tiny.same_bits(noise, tiny.resolved("dfa", arch=module_nets.TinyViT).noise(0, 0))
    # The stem drops once; a block on the attention weights, after the attention, inside the MLP and after it.
    assert sorted(name.removeprefix("each.dropout.") for name in noise) == [
        *(f"blocks.{block}.{mask}" for block in range(2) for mask in range(4)),
        "stem.0",
    ]
    assert all(0.6 < float(mask.mean()) < 0.95 for mask in noise.values())
    x, params = torch.randn(16, 3, 8, 8, dtype=torch.float64), resolved.params()
    with torch.no_grad():
        part = {name.removeprefix("stem."): leaf for name, leaf in params.items() if name.startswith("stem.")}
        dropped = net.in_training().with_noise(noise).stem(part, x)
        torch.testing.assert_close(dropped, net.stem(part, x) * noise["each.dropout.stem.0"] / 0.8)


@pytest.mark.parametrize("module", [module_nets.TinyResNet, module_nets.TinyGPT], ids=lambda module: module.__name__)
def test_bp_is_an_ordinary_torch_loop_with_torchs_running_averages(module):
    resolved = tiny.resolved("bp", arch=module, weight_decay=0.1)
    (found,) = tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 2)
    expected = tiny.torch_loop(module, resolved, 2)
    assert any(name.endswith("running_var") for name in expected) == (module is module_nets.TinyResNet)
    assert tiny.distance(with_effect(found.params), with_effect(expected)) < 1e-9


@pytest.mark.parametrize(
    "module",
    [pytest.param(each, marks=pytest.mark.slow if each in NETS[:4] else (), id=each.__name__) for each in NETS],
)
@pytest.mark.parametrize(
    "method", ["bp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dfa", "fa", "kp", "frsf", "local"))]
)
def test_a_fleet_of_modules_equals_its_models_trained_alone(module, method):
    frozen = f"{method}:shell={'bp' if method == 'bp' else 'method'}"
    runs = [tiny.resolved(text, arch=module, seeds=seed) for text, seed in ((method, 1), (method, 2), (frozen, 1))]
    data = runs[0].source.load(None)
    together = tiny.train(Fleet(runs, data, tiny.CPU), 1)
    for resolved, in_fleet in zip(runs, together, strict=True):
        (alone,) = tiny.train(Single(resolved, data, tiny.CPU), 1)
        assert tiny.distance(with_effect(in_fleet.params), with_effect(alone.params)) < 1e-9
        changed = {name for name, leaf in resolved.params().items() if not torch.equal(leaf, alone.params[name])}
        if resolved.shared_options.shell == "none":
            assert changed >= with_effect(resolved.params()).keys() - resolved.net.patch_leaves
        else:
            assert not {name for name in changed if name.startswith("blocks.")} - set(resolved.net.buffers)


@pytest.mark.parametrize("method", ["dfa", "fa", "kp"])
def test_a_module_resumes_from_a_snapshot_to_the_same_bits(method):
    resolved = tiny.resolved(method, arch=module_nets.TinyResNet, dtype="float32")
    data = resolved.source.load(None)
    driver, again = Single(resolved, data, tiny.CPU), Single(resolved, data, tiny.CPU)
    middle = tiny.train(driver, 1)
    (end,) = tiny.train(driver, 1)
    again.restore(middle)
    (found,) = tiny.train(again, 1)
    assert tiny.same_bits(found.params, end.params)


@pytest.mark.parametrize(
    ("how", "sizes"),
    [
        (Convolution((1, 1), (1, 1), (1, 1), 1), (4, 6)),
        (Convolution((2, 2), (1, 0), (1, 1), 1), (4, 6)),
        (Convolution((1, 2), (2, 2), (2, 2), 2), (4, 6)),
    ],
)
def test_a_convolution_with_feedback_is_a_transposed_convolution_with_it(how, sizes):
    draws = torch.Generator().manual_seed(0)
    into, out = sizes

    def drawn(*shape):
        return torch.randn(shape, generator=draws, dtype=torch.float64)

    x, weight, bias = drawn(2, 3, into, 8, 8), drawn(2, out, into // how.groups, 3, 3), drawn(2, out)
    feedback = drawn(*weight.shape)
    settings = (how.stride, how.padding, how.dilation, how.groups)
    credit = drawn(2, *F.conv2d(x[0], weight[0], None, *settings).shape)

    def pulled(x, weight, bias, feedback, credit):
        output, back = vjp(lambda *a: feedback_convolution(*a, feedback, how), x, weight, bias)
        return (output, *back(credit))

    together = vmap(pulled)(x, weight, bias, feedback, credit)
    for model in range(2):
        one = pulled(*(each[model] for each in (x, weight, bias, feedback, credit)))
        w, b = weight[model], feedback[model]
        expected = (
            F.conv2d(x[model], w, bias[model], *settings),
            conv2d_input(x[model].shape, b, credit[model], *settings),
            conv2d_weight(x[model], w.shape, credit[model], *settings),
            credit[model].sum((0, 2, 3)),
        )
        for found, mapped, right in zip(one, (each[model] for each in together), expected, strict=True):
            torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(mapped, right, rtol=1e-12, atol=1e-12)


def test_block_level_feedback_between_two_shapes_is_the_transpose_of_mixing_averaged_positions():
    draws = torch.Generator().manual_seed(0)
    for below, above in [
        ((4, 8, 8), (6, 4, 4)),
        ((4, 7, 5), (6, 3, 2)),
        ((4, 8, 8), (6,)),
        ((9, 4), (3, 6)),
        ((9, 4), (6,)),
    ]:
        widths = [shape[0] if len(shape) == 3 else shape[-1] for shape in (below, above)]
        matrix = torch.randn(widths, generator=draws, dtype=torch.float64)
        h = torch.randn(5, *below, generator=draws, dtype=torch.float64)
        credit = torch.randn(5, *above, generator=draws, dtype=torch.float64)

        def averaged(h, below=below, above=above):
            """The forward map: positions averaged, then features mixed by the transposed matrix."""
            if len(below) == 3:
                pooled = F.adaptive_avg_pool2d(h, above[1:] if len(above) == 3 else 1)
                return pooled if len(above) == 3 else pooled.flatten(1)
            pooled = F.adaptive_avg_pool1d(h.mT, above[0] if len(above) == 2 else 1)
            return pooled.mT if len(above) == 2 else pooled[..., 0]

        def mixed(h, axis, matrix=matrix):
            return torch.movedim(torch.movedim(h, axis, -1) @ matrix, -1, axis)

        axis = 1 if len(above) == 3 else -1
        down = send_down(matrix, credit, above, below)
        assert down.shape == h.shape
        torch.testing.assert_close((down * h).sum(), (credit * mixed(averaged(h), axis)).sum(), rtol=1e-12, atol=1e-12)
    square = torch.randn(4, 4, generator=draws)
    same = torch.randn(5, 4, 8, 8, generator=draws)
    assert torch.equal(send_down(square, same, (4, 8, 8), (4, 8, 8)), mix(square, same, "maps"))


@pytest.mark.parametrize("method", ["dfa", "sdfa", "drtp", "fa", "local", "fa_layers"])
def test_credits_have_the_shape_of_each_state(method):
    resolved = tiny.resolved(method, arch=module_nets.TinyResNet)
    net, params, state = resolved.net, resolved.params(), resolved.state()
    x, y = torch.randn(5, 3, 8, 8, dtype=torch.float64), torch.arange(5) % 4
    seen = trace(net, params, x, y, resolved.rule.linears(net, state, {}), with_input=True)
    rule = resolved.rule.bind({name: torch.tensor(value) for name, value in resolved.rule.knobs().items()})
    credits, _ = rule.credit(net, params, state, seen, {})
    assert [tuple(each.shape[1:]) for each in credits] == list(net.state_shapes)
    assert net.state_shapes == ((4, 8, 8), (4, 8, 8), (4, 8, 8), (8, 4, 4), (8, 4, 4))
    truth = transport(trace(net, params, x, y, [plain_linear] * net.depth, with_input=True))
    if method == "fa_layers":
        # Exact at the top, otherwise not; the shortcuts' convolutions have feedback, too.
        assert torch.equal(credits[-1], truth[-1])
        for found, right in zip(credits[:-1], truth[:-1], strict=True):
            assert (F.cosine_similarity(found.flatten(1), right.flatten(1)) < 0.999).all()
        assert "B.2.short" in state
        assert state["B.2.short"].shape == (8, 4, 1, 1)


def test_a_subject_of_a_module_has_its_states_and_gradients():
    resolved = tiny.resolved("dfa", arch=module_nets.TinyResNet)
    subject = NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state())
    x, y = torch.randn(5, 3, 8, 8, dtype=torch.float64), torch.arange(5) % 4
    seen = subject.run(x, y)
    made, names = module_nets.TinyResNet().double().eval(), resolved.net.facts.names
    made.load_state_dict({names[name]: leaf for name, leaf in resolved.params().items()}, strict=False)
    torch.testing.assert_close(seen.logits, made(x).detach(), rtol=1e-10, atol=1e-12)
    assert subject.found[0].startswith("TinyResNet: stem, 4 blocks (4 x ConvBlock)")
    logits = subject.lesioned_logits(x, resolved.params())
    assert [each is None for each in logits["lesion_skip"]] == [False, False, True, False]
    assert [each is None for each in logits["lesion_cut"]] == [True, True, True, False, False]
    for each in logits["lesion_reset"]:
        torch.testing.assert_close(each, seen.logits)


def test_rules_with_their_own_layers_reach_every_layer_of_every_kind_of_block():
    layers = {module: tiny.resolved("bp", arch=module).net.layers for module in NETS}
    assert {layer.form for layer in layers[module_nets.TinyGPT]} == {"conv1d"}
    assert [layer.key for layer in layers[module_nets.TinyViT]][:4] == [
        "0.self_attn.in_proj_weight",
        "0.self_attn.out_proj",
        "0.linear1",
        "0.linear2",
    ]
    grouped = next(layer for layer in layers[module_nets.TinyResNet] if layer.groups == 2)
    assert (grouped.shape, grouped.fan_out) == ((4, 2, 3, 3), 2 * 9)
    assert len(layers[module_nets.TiedInside]) == 3
    assert issubclass(type(tiny.resolved("fa_layers", arch=module_nets.TinyGPT).rule), CreditRule)
