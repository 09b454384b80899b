"""Networks as users have them (a ResNet-20, torch's TransformerEncoder, a tanh MLP, a VGG) trained by any rule."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
from walkback.core.configuration import grid
from walkback.credit import local
from walkback.credit.trace import trace
from walkback.nets.network import transpose
from walkback.training.fleet import Fleet
from walkback.training.resolved_run import resolve
from walkback.training.single import Single

RESNET20 = Path(__file__).parents[2] / "examples" / "resnet20" / "resnet20.py"


class BasicBlock(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or into != out:
            self.downsample = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += identity
        return self.relu(out)


class ResNet20(nn.Module):
    """Three stages of three blocks, as in torchvision, but for its widths."""

    IMAGES = True

    def __init__(self, width=4, classes=4):
        super().__init__()
        self.conv1, self.bn1, self.relu = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)
        self.layer1 = self.stage(width, width, 1)
        self.layer2 = self.stage(width, 2 * width, 2)
        self.layer3 = self.stage(2 * width, 4 * width, 2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(4 * width, classes)

    def stage(self, into, out, stride):
        return nn.Sequential(BasicBlock(into, out, stride), *[BasicBlock(out, out, 1) for _ in range(2)])

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.relu(self.bn1(self.conv1(x))))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Encoder(nn.Module):
    def __init__(self, d=8, classes=4):
        super().__init__()
        self.tokens = nn.Linear(2, d)
        layer = nn.TransformerEncoderLayer(d, 2, 2 * d, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, classes)

    def forward(self, x):
        return self.head(self.encoder(self.tokens(x.reshape(len(x), 3, 2))).mean(1))


class TanhMLP(nn.Module):
    def __init__(self, d=8, classes=4):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, d), nn.Tanh())
        self.hidden = nn.Sequential(*[nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3)])
        self.last = nn.Linear(d, classes)

    def forward(self, x):
        return self.last(self.hidden(self.first(x.flatten(1))))


class VGG(nn.Module):
    """No skips; maps shrink by pooling inside of blocks."""

    IMAGES = True

    def __init__(self, width=4, classes=4):
        super().__init__()
        self.first = self.block(3, width)
        self.features = nn.Sequential(
            self.block(width, width, nn.MaxPool2d(2)),
            self.block(width, 2 * width),
            self.block(2 * width, 2 * width, nn.MaxPool2d(2)),
        )
        self.classifier = nn.Linear(2 * width * 4, classes)

    def block(self, into, out, *pool):
        return nn.Sequential(nn.Conv2d(into, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(), *pool)

    def forward(self, x):
        return self.classifier(self.features(self.first(x)).flatten(1))


NETS = (ResNet20, Encoder, TanhMLP, VGG)
METHODS = ("bp", "fa_layers", "dfa", "kp", "usf")
ON_ALL = pytest.mark.parametrize("module", NETS, ids=lambda module: module.__name__)
WITHOUT_EFFECT = ("in_proj_bias",)
"""The biases of attention's keys are in it: their gradients are mere rounding, which AdamW makes steps of."""


def with_effect(leaves):
    return {name: leaf for name, leaf in leaves.items() if not name.endswith(WITHOUT_EFFECT)}


def test_the_resnet20_of_the_examples_is_taken_as_it_is():
    (config,) = grid("fa_layers", arch=f"{RESNET20}:ResNet20", data="tiles:train=192,test=64")
    net = resolve(config, None).net
    assert net.depth == 9
    assert net.state_shapes == ((16, 8, 8),) * 4 + ((32, 4, 4),) * 3 + ((64, 2, 2),) * 3
    assert len(net.layers) == 9 * 2 + 2


@ON_ALL
def test_backprop_is_an_ordinary_torch_loop(module):
    resolved = tiny.resolved("bp", arch=module, weight_decay=0.1)
    driver = Single(resolved, resolved.source.load(None), tiny.CPU)
    start = driver.snapshots()[0].params
    (found,) = tiny.train(driver, 1)
    assert tiny.distance(with_effect(found.params), with_effect(start)) > 1e-3
    assert tiny.distance(with_effect(found.params), with_effect(tiny.torch_loop(module, resolved, 1))) < 1e-10


@ON_ALL
def test_feedback_layer_by_layer_with_the_transposed_weights_is_backprop(module):
    resolved = tiny.resolved("fa_layers", arch=module)
    params, net = resolved.params(), resolved.net.in_training()
    random = resolved.state()
    weights = {f"B.{layer.key}": transpose(params[layer.leaf]) for layer in net.layers}
    assert weights.keys() == random.keys()
    x, y = torch.randn(6, *net.input_shape, dtype=torch.float64), torch.arange(6) % 4

    def gradients(state):
        seen = trace(net, params, x, y, resolved.rule.linears(net, state, {}), with_input=True)
        credits, _ = resolved.rule.credit(net, params, state, seen, {})
        return local.gradients(seen, credits, "output", None, "sum")

    leaves = {name: leaf.clone().requires_grad_(name not in net.buffers) for name, leaf in params.items()}
    names = net.facts.names
    logits = torch.func.functional_call(module().double().train(), {names[n]: leaf for n, leaf in leaves.items()}, (x,))
    asked = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    true = dict(zip(asked, torch.autograd.grad(F.cross_entropy(logits, y), list(asked.values())), strict=True))
    found, other = gradients(weights), gradients(random)
    for name, g in true.items():
        torch.testing.assert_close(found[name], g, rtol=1e-9, atol=1e-14)
    assert not torch.allclose(other[net.layers[0].leaf], true[net.layers[0].leaf], rtol=0.1, atol=0)


@pytest.mark.parametrize(
    "module",
    [pytest.param(each, marks=() if each is TanhMLP else pytest.mark.slow, id=each.__name__) for each in NETS],
)
@pytest.mark.parametrize(
    "method", [pytest.param(each, marks=() if each == "usf" else pytest.mark.slow) for each in METHODS]
)
def test_a_fleet_equals_its_models_trained_alone(module, method):
    runs = [tiny.resolved(method, arch=module, seeds=seed) for seed in (1, 2)]
    data = runs[0].source.load(None)
    for resolved, together in zip(runs, tiny.train(Fleet(runs, data, tiny.CPU), 1), strict=True):
        (alone,) = tiny.train(Single(resolved, data, tiny.CPU), 1)
        assert tiny.distance(with_effect(together.params), with_effect(alone.params)) < 1e-9
