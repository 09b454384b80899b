"""The networks against torch's own modules with the same weights, and rules on tokens and maps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.credit.feedback import direct_shape, mix, project
from walkback.credit.trace import trace
from walkback.data.feed import Feed
from walkback.data.sets.teacher import Teacher
from walkback.measure.subject import NetworkSubject
from walkback.nets import ARCHS
from walkback.nets.network import plain_linear
from walkback.training.driver import CALIBRATION_SAMPLES, Calibration
from walkback.training.fleet import Fleet
from walkback.training.planning.flop_count import count_step
from walkback.training.resolved_run import resolve
from walkback.training.single import Single

COUNTED = {"resmlp": "cifar10", "student_net": "teacher", "vit_mini": "cifar10", "small_cnn": "cifar10"}
"""Networks and data whose operations are counted by hand."""


def drawn(net, seed=0):
    """Random float64 parameters without special values such as zeros."""
    draws = torch.Generator().manual_seed(seed)
    leaves = {name: leaf.double() for name, leaf in net.init(draws).items()}
    return {n: v + 0.2 * torch.rand(v.shape, generator=draws, dtype=v.dtype) for n, v in leaves.items()}, draws


def load(module, leaves, prefix, names=("weight", "bias")):
    """Copy leaves `prefix.weight`, ... into a torch module, in float64."""
    module.double()
    with torch.no_grad():
        for name in names:
            getattr(module, name).copy_(leaves[f"{prefix}.{name}"].view_as(getattr(module, name)))


def assert_close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-12)


# resmlp ------------------------------------------------------------------------------------------------------------


def test_w2_starts_small_or_at_torchs_default():
    """`none` initialises W2 as the other Linears; the other leaves do not change."""
    net = ARCHS.get("resmlp")(input_shape=(6,), classes=4, d=64)
    small, default = (replace(net, w2_std=std).init(torch.Generator().manual_seed(0)) for std in (0.01, None))
    bound = 64**-0.5
    for block in range(net.depth):
        w2, bias = default[f"blocks.{block}.w2.weight"], default[f"blocks.{block}.w2.bias"]
        assert w2.abs().max() <= bound
        assert w2.std() == pytest.approx(bound / 3**0.5, rel=0.03)
        assert 0 < bias.abs().max() <= bound
        assert small[f"blocks.{block}.w2.weight"].std() == pytest.approx(0.01, rel=0.05)
        assert not small[f"blocks.{block}.w2.bias"].any()
    assert all(torch.equal(small[name], default[name]) for name in ("stem.weight", "blocks.0.w1.weight"))


def test_w2_std_none_is_written_and_read_back():
    resolved = tiny.resolved("bp", arch=tiny.arch("resmlp", "w2_std=none"))
    assert resolved.net.w2_std is None
    assert "w2_std=none" in str(resolved.config.arch)
    assert tiny.resolved("bp", arch=str(resolved.config.arch)).config.digest() == resolved.config.digest()
    assert resolve(RunConfig.from_json(resolved.config.to_json())).config == resolved.config


# vit_mini ------------------------------------------------------------------------------------------------------------


class TorchViT(nn.Module):
    """The same network from torch's modules: a strided convolution, MultiheadAttention, LayerNorm, Linear."""

    def __init__(self, net, leaves):
        super().__init__()
        d = net.d
        self.net, self.leaves = net, leaves
        self.embed = nn.Conv2d(net.input_shape[0], d, net.patch, stride=net.patch)
        load(self.embed, leaves, "stem.patch")
        for block in range(net.depth):
            name = f"blocks.{block}"
            attention = nn.MultiheadAttention(d, net.heads, batch_first=True).double()
            with torch.no_grad():
                attention.in_proj_weight.copy_(leaves[f"{name}.qkv.weight"])
                attention.in_proj_bias.copy_(leaves[f"{name}.qkv.bias"])
            load(attention.out_proj, leaves, f"{name}.proj")
            self.add_module(f"attention{block}", attention)
            for part, module in (
                ("norm1", nn.LayerNorm(d)),
                ("norm2", nn.LayerNorm(d)),
                ("fc1", nn.Linear(d, net.mlp_ratio * d)),
                ("fc2", nn.Linear(net.mlp_ratio * d, d)),
            ):
                load(module, leaves, f"{name}.{part}")
                self.add_module(f"{part}_{block}", module)
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, net.classes)
        load(self.norm, leaves, "head.norm")
        load(self.out, leaves, "head.out")

    def states(self, x):
        patches = self.embed(x).flatten(2).mT + self.leaves["stem.pos"]
        h = torch.cat([self.leaves["stem.cls"].expand(len(x), 1, -1), patches], 1)
        found = [h]
        for block in range(self.net.depth):
            part = lambda name, block=block: getattr(self, name + str(block))  # noqa: E731
            z = part("norm1_")(h)
            h = h + part("attention")(z, z, z, need_weights=False)[0]
            h = h + part("fc2_")(F.gelu(part("fc1_")(part("norm2_")(h))))
            found.append(h)
        return found

    def forward(self, x):
        return self.out(self.norm(self.states(x)[-1])[:, 0])


def test_vit_mini_equals_torchs_modules_state_by_state():
    net = ARCHS.get("vit_mini")(input_shape=(3, 16, 12), classes=5, depth=2, d=12, heads=3, mlp_ratio=2, patch=4)
    leaves, draws = drawn(net)
    torch_net = TorchViT(net, leaves).double()
    x = torch.randn(6, 3, 16, 12, generator=draws, dtype=torch.float64)
    traced = trace(net, leaves, x, torch.arange(6) % 5, [plain_linear] * 2, with_input=False)
    for ours, theirs in zip(traced.states, torch_net.states(x), strict=True):
        assert_close(ours, theirs)
    assert_close(traced.logits, torch_net(x))
    assert net.state_shape == (13, 12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"d": 10, "heads": 4}, "multiple of heads"),
        ({"patch": 5}, "divisor of the image's height and width"),
        ({"patch": 0}, "at least 1"),
        ({"input_shape": (64,)}, "cuts images"),
    ],
)
def test_vit_mini_refuses_sizes_that_do_not_divide(settings, words):
    with pytest.raises(InputError, match=words):
        ARCHS.get("vit_mini")(**({"input_shape": (3, 32, 32), "classes": 10} | settings))


# small_cnn -----------------------------------------------------------------------------------------------------------


class TorchCNN(nn.Module):
    def __init__(self, net, leaves):
        super().__init__()
        width = net.width
        self.depth = net.depth
        self.stem = nn.Conv2d(net.input_shape[0], width, 3, stride=2, padding=1)
        load(self.stem, leaves, "stem")
        self.blocks = nn.ModuleList()
        for block in range(net.depth):
            norms = [nn.BatchNorm2d(width, momentum=None) for _ in range(2)]
            convs = [nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2)]
            for index, (norm, conv) in enumerate(zip(norms, convs, strict=True), start=1):
                load(norm, leaves, f"blocks.{block}.bn{index}")
                load(conv, leaves, f"blocks.{block}.conv{index}", ("weight",))
            self.blocks.append(nn.Sequential(norms[0], nn.ReLU(), convs[0], norms[1], nn.ReLU(), convs[1]))
        self.head = nn.Linear(width, net.classes)
        load(self.head, leaves, "head")

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(F.adaptive_avg_pool2d(h, 1).flatten(1))

    def leaf(self, name):
        """The tensor that corresponds to a leaf of walkback's network."""
        first, *rest = name.split(".")
        if first != "blocks":
            return getattr(getattr(self, first), rest[0])
        block, part, kind = rest
        position = {"bn1": 0, "conv1": 2, "bn2": 3, "conv2": 5}[part]
        kind = {"mean": "running_mean", "var": "running_var"}.get(kind, kind)
        return getattr(self.blocks[int(block)][position], kind)


def test_small_cnn_equals_torchs_modules_with_batch_and_with_running_statistics():
    net = ARCHS.get("small_cnn")(input_shape=(3, 10, 7), classes=5, depth=2, width=6)
    leaves, draws = drawn(net)
    torch_net = TorchCNN(net, leaves).double()
    batches = [torch.randn(9, 3, 10, 7, generator=draws, dtype=torch.float64) * (i + 1) for i in range(3)]
    torch_net.train()
    for x in batches:
        assert_close(net.in_training().forward(leaves, x), torch_net(x))
    each = [net.statistics(leaves, x) for x in batches]
    leaves |= {name: torch.stack([found[name] for found in each]).mean(0) for name in each[0]}
    assert set(each[0]) == set(net.buffers)
    for name in net.buffers:
        assert_close(leaves[name], torch_net.leaf(name))
    torch_net.eval()
    assert_close(net.forward(leaves, batches[0]), torch_net(batches[0]))
    assert (net.forward(leaves, batches[0]) - net.in_training().forward(leaves, batches[0])).abs().max() > 1e-3
    assert net.state_shape == (6, 5, 4)


def test_backprop_trains_small_cnn_as_torch_trains_its_modules():
    """Every leaf after two epochs of torch's own loop, and the running statistics of its final weights."""
    resolved = tiny.resolved("bp", arch=tiny.arch("small_cnn"), lr=0.01, augment="none")
    data = resolved.source.load(None)
    start = resolved.params()
    (found,) = tiny.train(Single(resolved, data, tiny.CPU), 2)

    torch_net = TorchCNN(resolved.net, start).double().train()
    optimiser = torch.optim.AdamW(torch_net.parameters(), lr=0.01, weight_decay=resolved.config.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 2 * 4)
    feed = Feed(data, 16, "none", torch.float64, tiny.CPU)
    for epoch in range(2):
        order = feed.order(resolved.config.seed, epoch)
        for step in range(4):
            x, y = feed.take({name: values[step] for name, values in order.items()})
            optimiser.zero_grad()
            F.cross_entropy(torch_net(x), y).backward()
            optimiser.step()
            schedule.step()
    for norm in (module for module in torch_net.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.reset_running_stats()
    with torch.no_grad():
        for rows in torch.arange(64).split(16):
            torch_net(feed.take({"index": rows})[0])
    for name, leaf in found.params.items():
        torch.testing.assert_close(leaf, torch_net.leaf(name).detach(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("make", [lambda r, d: Single(r, d, tiny.CPU), lambda r, d: Fleet([r], d, tiny.CPU)])
def test_running_statistics_fit_the_stored_weights_also_in_a_frozen_baseline(make):
    resolved = tiny.resolved("bp:shell=bp", arch=tiny.arch("small_cnn"))
    data = resolved.source.load(None)
    driver = make(resolved, data)
    for epochs in (0, 1):
        (found,) = tiny.train(driver, epochs)
        feed = Feed(data, 16, "none", torch.float64, tiny.CPU)
        batches = [feed.take({"index": rows})[0] for rows in torch.arange(64).split(16)]
        each = [resolved.net.statistics(found.params, x) for x in batches]
        for name in resolved.net.buffers:
            assert_close(found.params[name], torch.stack([one[name] for one in each]).mean(0))
            assert f"first.{name}" not in found.moments


def test_statistics_are_computed_over_full_batches_of_the_first_training_samples():
    resolved = tiny.resolved("bp", arch=tiny.arch("small_cnn"), batch=48)
    data = resolved.source.load(None)
    long = replace(data, train_x=data.train_x.repeat(200, 1, 1, 1), train_y=data.train_y.repeat(200))

    def statistics(_params, x):
        return {"largest": x.flatten(1).sum(1).max(), "size": torch.tensor(len(x), dtype=torch.float64)}

    for samples, count in ((data, 1), (long, CALIBRATION_SAMPLES // 48)):
        found = {name: torch.zeros((), dtype=torch.float64) for name in ("largest", "size")}
        Calibration(resolved, samples, tiny.CPU)(found, statistics)
        feed = Feed(samples, 48, "none", torch.float64, tiny.CPU)
        batches = [feed.take({"index": rows})[0] for rows in torch.arange(48 * count).split(48)]
        assert found["size"] == 48
        assert_close(found["largest"], torch.stack([statistics({}, x)["largest"] for x in batches]).mean())


# student_net and its teacher -----------------------------------------------------------------------------------------


def test_student_net_equals_its_formula():
    net = ARCHS.get("student_net")(input_shape=(4,), classes=3, depth=2, d=5)
    p, draws = drawn(net)
    x = torch.randn(7, 4, generator=draws, dtype=torch.float64)
    h = x @ p["stem.weight"].T + p["stem.bias"]
    for block in ("blocks.0", "blocks.1"):
        z = h @ p[f"{block}.w1.weight"].T + p[f"{block}.w1.bias"]
        z = 0.5 * z * (1 + torch.erf(z / 2**0.5))
        h = h + z @ p[f"{block}.w2.weight"].T + p[f"{block}.w2.bias"]
    assert_close(net.forward(p, x), h @ p["head.weight"].T + p["head.bias"])


def test_the_teacher_is_a_student_net():
    """Its labels are those of a student_net whose head's bias centres the logits; no class is rare."""
    source = Teacher(train=3000, test=500)
    data = source.load(None)
    assert data.digest == source.load(None).digest != Teacher(train=3000, test=500, teacher_seed=1).load(None).digest
    assert (data.train_x.shape, data.test_x.shape) == ((3000, 64), (500, 64))
    assert data.train_x.mean().abs() < 5 / (3000 * 64) ** 0.5
    assert data.train_x.std() == pytest.approx(1, abs=5 / (2 * 3000 * 64) ** 0.5)
    shares = torch.bincount(data.train_y, minlength=10) / 3000
    assert shares.min() > 0.05
    assert shares.max() < 0.2

    from walkback.core.random_streams import generator

    net = ARCHS.get("student_net")(input_shape=(64,), classes=10, w2_std=source.branch_std)
    leaves = {name: leaf.double() for name, leaf in net.init(generator(0, "teacher")).items()}
    leaves["head.bias"] = leaves["head.bias"] - net.forward(leaves, data.train_x.double()).mean(0)
    assert torch.equal(net.forward(leaves, data.test_x.double()).argmax(-1), data.test_y)


@pytest.mark.parametrize("setting", ["dim=0", "labels=1", "train=0", "branch_std=0", "teacher_seed=-1"])
def test_the_teacher_refuses_invalid_settings(setting):
    with pytest.raises(InputError, match=setting.partition("=")[0]):
        tiny.resolved("bp", arch="student_net", data=f"teacher:{setting}")


# Rules on tokens and maps --------------------------------------------------------------------------------------------


def credits_on(resolved, rule_name, **knobs):
    rule = RULES.get(rule_name)(**knobs)
    data = resolved.source.load(None)
    x, y = (data.train_x[:9].double() / 255, data.train_y[:9])
    leaves, _ = drawn(resolved.net)
    state = {k: v.double() for k, v in rule.init(resolved.net, torch.Generator().manual_seed(1)).items()}
    traced = trace(resolved.net, leaves, x, y, [plain_linear] * resolved.net.depth, with_input=False)
    rule = rule.bind({name: torch.tensor(value) for name, value in rule.knobs().items()})
    return rule.credit(resolved.net, leaves, state, traced, {})[0], traced, state


def test_dfa_broadcast_sums_over_the_tokens_to_the_projected_error_and_cls_puts_it_at_cls():
    resolved = tiny.resolved("dfa", arch=tiny.arch("vit_mini"))
    spread, traced, state = credits_on(resolved, "dfa")
    at_cls, _, _ = credits_on(resolved, "dfa", credit_tokens="cls")
    for layer, (wide, narrow) in enumerate(zip(spread, at_cls, strict=True)):
        projected = torch.stack([state[f"B.{layer}"].T @ e for e in traced.error])
        assert_close(wide.sum(1), projected)
        assert torch.equal(wide, wide[:, :1].expand_as(wide))
        assert_close(narrow[:, 0], projected)
        assert not narrow[:, 1:].any()


def test_fa_acts_token_by_token_and_a_cls_head_leaves_the_patches_without_credit():
    credits, _, state = credits_on(tiny.resolved("fa", arch=tiny.arch("vit_mini")), "fa")
    for layer, credit in enumerate(credits):
        assert credit[:, 0].any()
        assert not credit[:, 1:].any()
        if layer < len(credits) - 1:
            assert_close(credit[3, 0], state[f"B.{layer}"] @ credits[layer + 1][3, 0])


def test_fa_broadcast_sends_each_token_an_equal_share_and_is_exact_at_the_top():
    credits, traced, state = credits_on(
        tiny.resolved("fa", arch=tiny.arch("vit_mini")), "fa", credit_tokens="broadcast"
    )
    assert torch.equal(credits[-1], traced.top)
    sent = traced.top.sum(1)
    for layer in reversed(range(len(credits) - 1)):
        sent = sent @ state[f"B.{layer}"].T
        assert_close(credits[layer].sum(1), sent)
        assert torch.equal(credits[layer], credits[layer][:, :1].expand_as(credits[layer]))


def test_fa_mixes_channels_and_dfa_projects_to_whole_maps():
    resolved = tiny.resolved("fa", arch=tiny.arch("small_cnn"))
    credits, _, state = credits_on(resolved, "fa")
    for layer in range(resolved.net.depth):
        assert tuple(state[f"B.{layer}"].shape) == (4, 4)
        kernel = state[f"B.{layer}"][:, :, None, None]
        assert_close(credits[layer], F.conv2d(credits[layer + 1], kernel))
    credits, traced, state = credits_on(resolved, "dfa")
    assert direct_shape(resolved.net.classes, resolved.net.state_shape) == (4, 4 * 4 * 4)
    for layer, credit in enumerate(credits):
        assert_close(credit[2].flatten(), state[f"B.{layer}"].T @ traced.error[2])


def test_mixing_a_vector_and_projecting_to_it_are_plain_products():
    net = ARCHS.get("student_net")(input_shape=(4,), classes=3, d=5)
    draws = torch.Generator().manual_seed(0)
    matrix, credit = torch.randn(5, 5, generator=draws), torch.randn(7, 5, generator=draws)
    torch.testing.assert_close(mix(matrix, credit, net.kind), credit @ matrix.T)
    error, direct = torch.randn(7, 3, generator=draws), torch.randn(3, 5, generator=draws)
    torch.testing.assert_close(project(net.state_shape, error, direct, "broadcast"), error @ direct)


@pytest.mark.parametrize("method", ["fa", "dfa:credit_tokens=cls"])
def test_a_stem_without_credit_is_not_trained_and_reported_as_skipped(method):
    resolved = tiny.resolved(method, arch=tiny.arch("vit_mini"), weight_decay=0.5, lr=0.1, dtype="float32")
    start, data = resolved.params(), resolved.source.load(None)
    for driver in (Single(resolved, data, tiny.CPU), Fleet([resolved], data, tiny.CPU)):
        (found,) = tiny.train(driver, 2)
        kept = {name for name, leaf in start.items() if torch.equal(found.params[name], leaf)}
        assert kept == {"stem.patch.weight", "stem.patch.bias", "stem.pos"}
    subject = NetworkSubject(resolved.net, start, resolved.rule, resolved.state())
    (reason,) = subject.skipped
    assert reason.startswith("stem not trained")
    assert "stem.patch and stem.pos" in reason
    assert subject.double().skipped == subject.skipped


@pytest.mark.parametrize("method", ["bp", "dfa", "fa:credit_tokens=broadcast"])
def test_a_stem_with_credit_is_trained_and_nothing_is_skipped(method):
    resolved = tiny.resolved(method, arch=tiny.arch("vit_mini"))
    (found,) = tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 1)
    assert not any(torch.equal(found.params[name], leaf) for name, leaf in resolved.params().items())
    assert NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state()).skipped == ()


def test_rules_and_settings_not_defined_on_a_network_are_refused():
    with pytest.raises(InputError, match=r"'sham'.*'small_cnn'.*Linears"):
        tiny.resolved("sham", arch=tiny.arch("small_cnn"))
    for net in ("resmlp", "small_cnn"):
        with pytest.raises(InputError, match="credit_tokens=cls"):
            tiny.resolved("dfa:credit_tokens=cls", arch=tiny.arch(net))
        with pytest.raises(InputError, match="credit_tokens=broadcast"):
            tiny.resolved("fa:credit_tokens=broadcast", arch=tiny.arch(net))
    with pytest.raises(InputError, match="convolves images"):
        tiny.resolved("bp", arch="small_cnn", data=tiny.DATA)


# Properties of all networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHS.names())
def test_the_linears_applied_inside_a_block_are_its_block_linears(name):
    net = ARCHS.get(name)(input_shape=(3, 32, 32) if tiny.needs_images(name) else (64,), classes=10)
    leaves = net.init(torch.Generator().manual_seed(0))
    applied = []

    def record(name, x, weight, bias):
        applied.append((name, x.shape[-1], weight.shape[0]))
        assert weight is leaves[f"blocks.0.{name}.weight"]
        return F.linear(x, weight, bias)

    h = net.stem({n.removeprefix("stem."): v for n, v in leaves.items()}, torch.zeros(2, *net.input_shape))
    assert h.shape == (2, *net.state_shape)
    net.branch({n.removeprefix("blocks.0."): v for n, v in leaves.items()}, h, record)
    assert tuple(applied) == net.block_linears
    assert net.features == {"vector": h.shape[-1], "tokens": h.shape[-1], "maps": h.shape[1]}[net.kind]


@pytest.mark.parametrize(("name", "data"), COUNTED.items())
def test_the_operations_of_a_step_are_counted_without_running_it(name, data):
    """Backprop needs six operations for each multiplication of the forward pass; four in the stem."""
    resolved = tiny.resolved("bp", arch=name, data=data, dtype="float32", batch=128)
    count = count_step(resolved)
    net, leaves = resolved.net, resolved.params()
    weights = {name: leaf for name, leaf in leaves.items() if name.endswith("weight") and leaf.ndim > 1}
    stem, blocks, head = (
        sum(leaf.numel() for name, leaf in weights.items() if name.startswith(part))
        for part in ("stem", "blocks", "head")
    )
    at = {"vector": (1, 1), "tokens": (64, 65), "maps": (256, 256)}[net.kind]
    attention = net.depth * 2 * 65**2 * net.features if net.kind == "tokens" else 0
    products = 4 * at[0] * stem + 6 * (at[1] * blocks + attention + head)
    assert count.flops == 128 * products
    assert count.leaf_bytes == sum(leaf.nbytes for leaf in leaves.values())
