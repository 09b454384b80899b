"""Which modules can be taken as networks, why others are refused, and how a configuration records them."""

from __future__ import annotations

import functools
import json
import sys
import textwrap

import pytest
import torch
from torch import nn

import module_nets
import tiny
from walkback.core.errors import InputError
from walkback.core.settings import Spec, parse_arch
from walkback.nets.module_source import source_hash, source_of_object, source_of_spec, spec_of_object
from walkback.training.planning.flop_count import count_step


def net_of(module, **settings):
    return tiny.resolved("bp", arch=module, **settings).net


class OtherClasses(module_nets.PlainResMLP):
    def __init__(self):
        super().__init__(classes=7)


class CalledTwice(module_nets.PlainResMLP):
    def forward(self, x):
        h = self.stem(x)
        for block in (*self.blocks, self.blocks[0]):
            h = block(h)
        return self.out(self.norm(h))


class InPlaceBlock(module_nets.Block):
    def forward(self, h):
        h.relu_()
        return h + self.w1(h)


class InPlace(module_nets.PlainResMLP):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([InPlaceBlock(8) for _ in range(3)])


class MaskFromInput(module_nets.TinyGPT):
    """Its blocks get an argument that depends on the input."""

    def forward(self, x):
        tokens = x.reshape(len(x), 3, 2)
        h = self.wte(tokens)
        mask = (tokens.sum(-1) > -1e9)[:, None, None, :] & (tokens[..., :1].mT > tokens[..., 1:].mT)[:, None]
        for block in self.h:
            h = block(h, attention_mask=torch.where(mask, 0.0, -1.0).to(h))[0]
        return self.score(self.ln_f(h)).mean(1)


class Cumulative(module_nets.TinyResNet):
    def __init__(self):
        super().__init__()
        self.bn.momentum = None


class RandomBuffer(module_nets.PlainResMLP):
    def __init__(self):
        super().__init__()
        self.register_buffer("directions", torch.randn(3))


class Counting(module_nets.PlainResMLP):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen += 1
        return super().forward(x)


class PlainTensor(module_nets.PlainResMLP):
    """It holds a tensor that is no buffer, which stays on the CPU."""

    def __init__(self):
        super().__init__()
        self.scales = torch.linspace(0.5, 1, 6)

    def forward(self, x):
        return super().forward(x * self.scales.to(x.dtype))


class Lazy(module_nets.PlainResMLP):
    def __init__(self):
        super().__init__()
        self.stem = nn.LazyLinear(8)


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Lazy, ["stem.weight", "lazy"]),
        (module_nets.Tied, ["out.weight", "blocks.1.w1.weight", "tied"]),
        (module_nets.TiedEnds, ["stem.weight", "tied"]),
        (module_nets.SkipsToHead, ["skip from the input"]),
        (module_nets.StochasticDepth, ["random"]),
        (module_nets.NoisyBlocks, ["randn_like"]),
        (OtherClasses, ["7", "4 classes"]),
        (CalledTwice, ["order", "[0, 1, 2, 0]"]),
        (InPlace, ["in place"]),
        (MaskFromInput, ["argument of a block"]),
        (Cumulative, ["stem.bn.running_mean", "momentum"]),
        (RandomBuffer, ["directions", "random"]),
        (Counting, ["seen", "training mode"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_module_that_cannot_be_taken_apart_is_refused_by_name_and_reason(module, words):
    classes = {"classes": 8} if module is module_nets.Tied else {}
    labels = {"data": "prototypes:train=96,test=64,dim=6,prototypes=8,labels=8"} if classes else {}
    if module is module_nets.TiedEnds:
        labels = {"data": "prototypes:train=96,test=64,dim=6,prototypes=12,labels=6"}
    with pytest.raises(InputError) as caught:
        tiny.resolved("bp", arch=module, **labels)
    for word in (module.__name__, *words):
        assert word in str(caught.value)


def test_rules_are_refused_where_a_module_does_not_have_what_they_need():
    with pytest.raises(InputError, match="'weight' is used by einsum"):
        tiny.resolved("kp", arch=module_nets.EinsumNet)
    assert tiny.resolved("fa", arch=module_nets.EinsumNet).net.depth == 3
    with pytest.raises(InputError, match="site"):
        tiny.resolved("dfa:site=input", arch=module_nets.TinyResNet)
    for rule in ("ep", "node_perturbation", "state_bridge"):
        with pytest.raises(InputError, match="change their shape"):
            tiny.resolved(rule, arch=module_nets.TinyResNet)
    with pytest.raises(InputError, match="dropout"):
        tiny.resolved("node_perturbation", arch=module_nets.TinyViT)
    assert "input" not in tiny.resolved("dfa", arch=module_nets.TinyResNet).oracles
    assert "input" in tiny.resolved("dfa", arch=module_nets.PlainResMLP).oracles


def test_what_is_known_of_a_module():
    net = net_of(module_nets.TinyViT)
    assert net.head_reads_cls
    assert set(net.patch_leaves) == {"stem.patch.weight", "stem.patch.bias", "stem.pos"}
    assert tiny.resolved("fa", arch=module_nets.TinyViT).rule.untrained(net) == net.patch_leaves
    whole = net_of(module_nets.TinyGPT)
    assert not whole.head_reads_cls
    assert tiny.resolved("fa", arch=module_nets.TinyGPT).rule.untrained(whole) == ()
    assert "depends on values" in net_of(module_nets.Branching).alone
    assert net_of(module_nets.BranchMLP).adds_input
    assert set(net_of(module_nets.TinyResNet).buffers) >= {"stem.bn.running_mean", "blocks.2.bn1.running_var"}


def test_the_work_of_a_module_is_counted_also_where_the_meta_device_cannot_run_it():
    own, plain, branching = (
        count_step(tiny.resolved("bp", arch=module))
        for module in (PlainTensor, module_nets.PlainResMLP, module_nets.Branching)
    )
    assert own.flops == plain.flops == branching.flops > 0


def test_each_seed_builds_its_own_weights_and_global_random_numbers_stay():
    before = torch.get_rng_state()
    first, again, other = (tiny.resolved("bp", arch=module_nets.PlainMLP, seeds=s).params() for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert tiny.same_bits(first, again)
    assert not torch.equal(first["blocks.0.0.weight"], other["blocks.0.0.weight"])


def test_blocks_can_be_named():
    found = spec_of_object(module_nets.PlainResMLP)
    from walkback.nets.module_source import with_blocks

    by_path, by_name = with_blocks(found, "blocks"), with_blocks(found, ["blocks.0", "blocks.1", "blocks.2"])
    assert by_name.settings["blocks"] == "blocks.0+blocks.1+blocks.2"
    assert {tiny.resolved("bp", arch=spec).net.depth for spec in (by_path, by_name)} == {3}
    with pytest.raises(InputError, match="stages"):
        tiny.resolved("bp", arch=with_blocks(found, "stages"))
    with pytest.raises(InputError, match="resmlp"):
        with_blocks(Spec("resmlp", {}), "blocks")
    with pytest.raises(InputError, match="list of names"):
        with_blocks(found, [])


NESTED = {"module": "a.b.nets:Outer.Net", "width": "16", "blocks": "stages"}


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("my_nets:ResNet14", Spec("ResNet14", {"module": "my_nets:ResNet14"})),
        ("a.b.nets:Outer.Net:width=16,blocks=stages", Spec("Net", NESTED)),
        ("nets/my.py:build", Spec("build", {"module": "nets/my.py:build"})),
        ("resmlp:d=8,depth=2", Spec("resmlp", {"d": "8", "depth": "2"})),
        ("resmlp", Spec("resmlp", {})),
    ],
)
def test_networks_are_read_from_text(text, spec):
    assert parse_arch(text) == spec
    assert parse_arch(str(spec)) == spec


@pytest.mark.parametrize("text", ["my_nets:", "my_nets:a-b", ":Name", "my_nets:Net:width"])
def test_unreadable_networks_are_refused(text):
    with pytest.raises(InputError, match=text.partition(":")[0] or "Name"):
        tiny.resolved("bp", arch=text)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with a module file that imports another one."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    (tmp_path / "wb_parts.py").write_text("WIDTH = 8\n")
    (tmp_path / "wb_unrelated.py").write_text("A = 1\n")
    (tmp_path / "wb_nets.py").write_text(
        textwrap.dedent(
            """
            import wb_parts
            from torch import nn


            class Net(nn.Module):
                def __init__(self, width=wb_parts.WIDTH, num_classes=2):
                    super().__init__()
                    self.stem = nn.Linear(6, width)
                    self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
                    self.out = nn.Linear(width, num_classes)

                def forward(self, x):
                    h = self.stem(x)
                    for layer in self.layers:
                        h = layer(h).tanh()
                    return self.out(h)


            class Same(Net):
                def forward(self, x):
                    h = self.stem(x)
                    for layer in self.layers:
                        h = layer(h)
                    return self.out(h)


            NUMBER = 3
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("wb_"):
            del sys.modules[name]


def test_a_module_is_recorded_by_name_and_source_and_gets_the_datas_classes(folder):
    resolved = tiny.resolved("bp", arch="wb_nets:Same:width=12", data=tiny.DATA)
    document = json.loads(json.dumps(resolved.config.to_json()))["arch"]
    assert document.keys() == {"name", "module", "source", "width"}
    assert (document["name"], document["module"], document["width"]) == ("Same", "wb_nets:Same", 12)
    assert str(folder) not in json.dumps(document)
    assert resolved.name.startswith("bp_Same_prototypes_s1_")
    assert resolved.net.state_shape == (12,)
    assert resolved.net.classes == 4
    by_path = tiny.resolved("bp", arch="wb_nets.py:Same:width=12", data=tiny.DATA)
    assert by_path.digest == resolved.digest


def test_the_source_hash_covers_the_file_and_what_it_imports_from_its_folder(folder):
    import wb_nets

    (folder / "wb_parts.py").write_text("WIDTH = 10\n")
    first = source_hash(wb_nets.Same)
    (folder / "wb_unrelated.py").write_text("A = 2\n")
    assert source_hash(wb_nets.Same) == first
    (folder / "wb_parts.py").write_text("WIDTH = 9\n")
    second = source_hash(wb_nets.Same)
    assert second != first
    spec = Spec("Same", {"module": "wb_nets:Same", "source": first})
    with pytest.raises(InputError, match=first[:12]):
        source_of_spec(spec)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wb_none:Net", "wb_none"),
        ("wb_nets:None", "None"),
        ("wb_nets:Missing", "Missing"),
        ("wb_nets:NUMBER", "NUMBER"),
        ("missing.py:Net", "missing.py"),
        ("wb_nets:Same:depth=3", "depth"),
    ],
)
def test_what_cannot_be_found_or_built_is_refused(folder, text, words):
    with pytest.raises(InputError, match=words):
        tiny.resolved("bp", arch=text, data=tiny.DATA)


def test_objects_that_no_other_process_can_import_are_trained_with_a_warning():
    width = 8
    with pytest.warns(UserWarning, match="passed in Python again"):
        local = source_of_object(lambda: module_nets.PlainResMLP(width))
    assert tiny.resolved("bp", arch=Spec(local.name, local.settings)).net.depth == 3
    ready = module_nets.PlainResMLP()
    with pytest.warns(UserWarning, match="ready made"):
        spec = spec_of_object(ready)
    one, two = (tiny.resolved("bp", arch=spec, seeds=seed).params() for seed in (1, 2))
    assert tiny.same_bits(one, two)
    torch.testing.assert_close(one["head.out.weight"], ready.out.weight.detach().double())
    with pytest.warns(UserWarning, match="ready made"):
        assert spec_of_object(module_nets.PlainResMLP()).settings["weights"] != spec.settings["weights"]
    with pytest.raises(InputError, match="Pass the same one"):
        source_of_spec(Spec("Net", {**spec.settings, "weights": "0"}))


def test_arguments_are_recorded_and_others_refused():
    source = source_of_object(functools.partial(module_nets.PlainResMLP, depth=2, d=8))
    assert dict(source.arguments) == {"depth": 2, "d": 8}
    assert tiny.resolved("bp", arch=Spec(source.name, source.settings)).net.depth == 2
    with pytest.raises(InputError, match="positional"):
        source_of_object(functools.partial(module_nets.PlainResMLP, 8))
    with pytest.raises(InputError, match="'d' is a list"):
        source_of_object(functools.partial(module_nets.PlainResMLP, d=[8]))
    with pytest.raises(InputError, match="int"):
        spec_of_object(3)
    with pytest.raises(InputError, match="returned a dict"):
        tiny.resolved("bp", arch=spec_of_object(dict))
