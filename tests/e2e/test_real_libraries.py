"""Models of transformers and timm, where they are installed: small, with random weights, healthy and exploded.

The models in `tests/unit/foreign_models.py` have the same structure and are always tested.
"""

from __future__ import annotations

import pytest
import torch

import walkback as wb

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]

COUNT, CLASSES = 256, 4


def draws():
    return torch.Generator().manual_seed(0)


def labels():
    return torch.randint(CLASSES, (COUNT,), generator=draws())


def scale_blocks(blocks, writers, factor):
    """Multiply what every block adds to the residual stream by `factor`."""
    with torch.no_grad():
        for block in blocks:
            for name in writers:
                for parameter in block.get_submodule(name).parameters():
                    parameter.mul_(factor)


def statuses(model, batch):
    report = wb.diagnose(model, [batch], 0.5, 0.4)
    assert report.quantities.top.direction.status == "valid"
    return report, (report.flags["D1"].status, report.flags["D2"].status)


def check(model, batch, blocks, writers, count):
    """D1 and D2 pass on the model as it is, and fail after its blocks are scaled up; the model is not changed."""
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report, found = statuses(model, batch)
    assert found == ("clear", "clear")
    assert report.measurements.facts["layers"] == count + 1
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    scale_blocks(blocks, writers, 1e9)
    exploded, found = statuses(model, batch)
    assert found == ("raised", "raised")
    # One pair of accuracies does not decide the claims; the papers' rule fails on growth with collapse.
    assert exploded.verdicts["three"].outcome == "walked_back"
    assert exploded.verdict == "inconclusive"
    return report


def test_a_gpt2_classifier():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=8, n_embd=16, n_layer=3, n_head=2, num_labels=CLASSES, pad_token_id=0,
        bos_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = transformers.GPT2ForSequenceClassification(config)
    ids = torch.randint(2, 50, (COUNT, 8), generator=draws())
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels()}
    report = check(model, batch, model.transformer.h, ("attn.c_proj", "mlp.c_proj"), 3)
    assert report.measurements.facts["pool"] == "all"


def test_a_vit_of_transformers():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_labels=CLASSES,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config)
    batch = {"pixel_values": torch.randn(COUNT, 3, 8, 8, generator=draws()), "labels": labels()}
    (blocks,) = [
        list(module) for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList) and name
    ]
    writers = [
        name
        for name, module in blocks[0].named_modules()
        if isinstance(module, torch.nn.Linear) and name.endswith(("output.dense", "o_proj", "fc2"))
    ]
    assert len(writers) == 2
    report = check(model, batch, blocks, writers, 3)
    assert report.measurements.facts["pool"] == "cls"


@pytest.mark.parametrize(("pooling", "pool"), [("token", "cls"), ("avg", "all")])
def test_a_vit_of_timm(pooling, pool):
    timm = pytest.importorskip("timm", exc_type=ImportError)
    torch.manual_seed(0)
    # Without fc_norm=False, `avg` would put the norm after the pooling.
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=8, patch_size=4, embed_dim=16, depth=3, num_heads=2, num_classes=CLASSES,
        global_pool=pooling, class_token=pooling == "token", fc_norm=False,
    )  # fmt: skip
    batch = torch.randn(COUNT, 3, 8, 8, generator=draws()), labels()
    report = check(model, batch, model.blocks, ("attn.proj", "mlp.fc2"), 3)
    assert report.measurements.facts["pool"] == pool


def test_a_resnet_of_timm_has_no_terminal_norm():
    timm = pytest.importorskip("timm", exc_type=ImportError)
    torch.manual_seed(0)
    model = timm.create_model("resnet18", channels=(8, 8, 16, 16), num_classes=CLASSES, zero_init_last=False)
    batch = torch.randn(COUNT, 3, 32, 32, generator=draws()), labels()
    with torch.no_grad():
        model.train()(batch[0])
    report, found = statuses(model, batch)
    assert found == ("clear", "clear")
    assert report.measurements.facts["found"] == ["8 blocks (8 x BasicBlock), each returning the next state"]
    stages = (model.layer1, model.layer2, model.layer3, model.layer4)
    scale_blocks([block for stage in stages for block in stage], ("bn2",), 1e4)
    _, found = statuses(model, batch)
    assert found == ("raised", "clear")


@pytest.mark.parametrize("kind", ["fa", "usf"])
def test_biotorch_layers_have_the_reference_of_plain_ones_and_their_own_backward_as_credit(kind):
    linears = pytest.importorskip(f"biotorch.layers.{kind}.linear")

    class Block(torch.nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.norm, self.linear = torch.nn.LayerNorm(16), linear(16, 16)

        def forward(self, h):
            return h + self.linear(self.norm(h))

    def build(linear):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Linear(6, 16), *(Block(linear) for _ in range(3)), torch.nn.Linear(16, CLASSES)
        )

    model, plain = build(linears.Linear), build(torch.nn.Linear)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name in plain.state_dict()})
    x = torch.randn(COUNT, 6, generator=draws())

    def gradients(net):
        states = [net[0](x)]
        for block in list(net)[1:4]:
            states.append(block(states[-1]))
        loss = torch.nn.functional.cross_entropy(net[4](states[-1]), labels(), reduction="sum")
        return torch.autograd.grad(loss, states)

    pairs = zip(gradients(model), gradients(plain), strict=True)
    expected = [float(torch.nn.functional.cosine_similarity(a, g).mean()) for a, g in pairs]
    report = wb.diagnose(model, [(x, labels())])
    found = report.measurements.arrays["credit_cos"].mean(axis=1)
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
    assert min(found) < 0.95
