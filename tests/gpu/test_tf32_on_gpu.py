"""On a GPU a run with dtype=tf32 trains with TF32 matmuls and is measured without."""

from __future__ import annotations

import pytest
import torch

import tiny
from walkback.training.fleet import Fleet
from walkback.training.single import Single

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")]

GPU = torch.device("cuda")
NETS = {
    "resmlp": {"arch": "resmlp:d=64,depth=2", "data": "prototypes:train=128,test=64,dim=64", "batch": 64},
    "small_cnn": {"arch": "small_cnn:width=32,depth=2", "batch": 32},
}
FLOAT32, TF32 = 1e-5, 1e-4
"""Relative errors of the moments after one step: below the first in float32, above the second in TF32."""


def driver_of(kind, resolved):
    data = resolved.source.load(None)
    return Single(resolved, data, GPU) if kind == "single" else Fleet([resolved, resolved], data, GPU)


def after_one_step(kind, **settings):
    """AdamW's first moments after one step: a tenth of the gradient."""
    resolved = tiny.resolved("bp", epochs=1, **settings)
    driver = driver_of(kind, resolved)
    driver.steps_per_epoch = 1
    (snapshot, *_) = tiny.train(driver, 1)
    return {name: moment.double() for name, moment in snapshot.moments.items() if name.startswith("first.")}


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("kind", ["single", "traced", "compiled"])
def test_only_a_tf32_run_has_gradients_rounded_to_ten_bits(kind, net, monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: kind == "compiled")
    true, fine, coarse = (after_one_step(kind, dtype=each, **NETS[net]) for each in ("float64", "float32", "tf32"))
    assert tiny.distance(fine, true) < FLOAT32
    assert TF32 < tiny.distance(coarse, true) < 0.1


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("kind", ["single", "fleet"])
def test_a_tf32_run_is_measured_in_float32(kind, net):
    resolved = tiny.resolved("bp", dtype="tf32", **NETS[net])
    driver = driver_of(kind, resolved)
    driver.train_epoch(lambda _steps: None)
    data = resolved.source.load(None)
    x = torch.randn(64, *resolved.net.input_shape, generator=torch.Generator().manual_seed(0)).to(GPU)

    def logits(params, state, knobs, x, y, noise):
        return {"logits": resolved.net.forward(params, x)}

    found = driver.apply(logits, x, data.test_y[:1].to(GPU), {})["logits"][0].cpu()
    (snapshot, *_) = driver.snapshots()
    true = resolved.net.forward({name: leaf.double() for name, leaf in snapshot.params.items()}, x.cpu().double())
    assert ((found - true).norm() / true.norm()).item() < FLOAT32
