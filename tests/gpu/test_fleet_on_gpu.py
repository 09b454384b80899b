"""On a GPU the fleet is a captured CUDA graph; it must still train the same networks as the single driver."""

from __future__ import annotations

import pytest
import torch

import tiny
from walkback.training.fleet import Fleet
from walkback.training.gpu.concurrent_fleets import ConcurrentFleets
from walkback.training.single import Single

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(params=["traced", "compiled"])
def compiled(request, monkeypatch):
    """Force the decision whether to compile: these runs are too short for compiling to pay."""
    monkeypatch.setattr(
        "walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: request.param == "compiled"
    )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("net", ["resmlp", "student_net", "vit_mini", "small_cnn"])
@pytest.mark.parametrize("rule", ["bp", "sham", "fa", "dfa", "state_bridge", "credit_bridge"])
def test_a_captured_fleet_equals_the_single_driver_on_the_cpu(rule, net):
    if (rule, net) not in tiny.defined():
        pytest.skip(f"{rule} is not defined on {net}")
    for site in {"bp": ["output"], "sham": ["output"]}.get(rule, ["output", "input"]):
        text = f"{rule}:site={site}"
        methods = [text, f"{text},penalty=0.01", f"{text},shell={'bp' if rule == 'bp' else 'method'}"]
        resolved_runs = [
            tiny.resolved(method, arch=tiny.arch(net), seeds=seed) for seed in (1, 2) for method in methods
        ]
        data = resolved_runs[0].source.load(None)
        fleet = tiny.train(Fleet(resolved_runs, data, torch.device("cuda")), 2)
        for resolved, snapshot in zip(resolved_runs, fleet, strict=True):
            (alone,) = tiny.train(Single(resolved, data, tiny.CPU), 2)
            # AdamW reads the learning rate as float32 on a GPU: after 12 steps the difference is within its rounding.
            assert tiny.distance(snapshot.params, alone.params) < 5e-7, resolved.method


@pytest.mark.parametrize("method", ["kp", "state_bridge"])
@pytest.mark.parametrize(
    "recipe",
    [
        {"optimizer": "sgd:momentum=0.9,nesterov=true", "schedule": "step:every=1"},
        {"optimizer": "sgd", "schedule": "constant"},
        {"optimizer": "adam", "schedule": "warmup_cosine:warmup=0.3"},
    ],
    ids=lambda recipe: recipe["optimizer"],
)
def test_a_captured_fleet_of_several_learning_rates_equals_the_single_driver(method, recipe):
    texts = [(method, 0.02), (f"{method}:shell=method", 0.005), (method, 0.005), (f"{method}:shell=method", 0.02)]
    runs = [tiny.resolved(text, **{**recipe, "lr": lr}) for text, lr in texts]
    data = runs[0].source.load(None)
    for run, found in zip(runs, tiny.train(Fleet(runs, data, torch.device("cuda")), 2), strict=True):
        (alone,) = tiny.train(Single(run, data, tiny.CPU), 2)
        assert tiny.distance(found.params, alone.params) < 5e-7, run.method


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("net", ["resmlp", "vit_mini", "small_cnn"])
def test_a_captured_fleet_resumes_from_a_snapshot_to_the_same_bits(net):
    resolved_runs = [
        tiny.resolved("dfa", arch=tiny.arch(net), seeds=seed, dtype="float32", epochs=4) for seed in (1, 2)
    ]
    data = resolved_runs[0].source.load(None)
    through = Fleet(resolved_runs, data, torch.device("cuda"))
    middle = tiny.train(through, 2)
    end = tiny.train(through, 2)
    again = Fleet(resolved_runs, data, torch.device("cuda"))
    again.restore(middle)
    for left, right in zip(tiny.train(again, 2), end, strict=True):
        assert tiny.same_bits(left.params, right.params)


@pytest.mark.usefixtures("compiled")
def test_concurrent_fleets_train_to_the_same_bits_as_alone():
    """Their kernels run at the same time: a workspace or buffer shared by two of them would change the results."""
    sizes = {"arch": "resmlp:d=128,depth=3", "batch": 64, "dtype": "float32", "epochs": 12}
    sizes["data"] = "prototypes:train=4096,test=1024,dim=96"
    rules = ["bp", "dfa", "fa:site=input", "credit_bridge:site=input", "node_perturbation"]
    fleets = [[tiny.resolved(rule, seeds=seed, **sizes) for seed in (1, 2, 3)] for rule in rules]
    data = fleets[0][0].source.load(None)
    concurrent = ConcurrentFleets(fleets, data, torch.device("cuda"))
    together = tiny.train(concurrent, 4)
    accuracies = concurrent.test_accuracy()
    alone = [Fleet(members, data, torch.device("cuda")) for members in fleets]
    for left, right in zip(together, [one for fleet in alone for one in tiny.train(fleet, 4)], strict=True):
        assert tiny.same_bits(left.params, right.params)
        assert tiny.same_bits(left.state, right.state)
    assert accuracies == [share for fleet in alone for share in fleet.test_accuracy()]
