"""Our optimisers and schedules against torch's own."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.optim import lr_scheduler

import tiny
from walkback.core.errors import InputError
from walkback.core.settings import Spec
from walkback.training.fleet import Fleet
from walkback.training.optimisers import OPTIMISERS, LeafOptimiser, make_optimiser
from walkback.training.schedules import SCHEDULES, CosineSchedule, make_schedule
from walkback.training.single import Single

EPOCH, TOTAL = 6, 24
"""Steps of an epoch and of a run."""

REFERENCES = {
    "adamw": lambda params, lr, wd: torch.optim.AdamW(params, lr=lr, weight_decay=wd),
    "adamw:beta1=0.5,beta2=0.9,eps=0.01": lambda params, lr, wd: torch.optim.AdamW(
        params, lr=lr, weight_decay=wd, betas=(0.5, 0.9), eps=0.01
    ),
    "adam": lambda params, lr, wd: torch.optim.Adam(params, lr=lr, weight_decay=wd),
    "sgd": lambda params, lr, wd: torch.optim.SGD(params, lr=lr, weight_decay=wd),
    "sgd:momentum=0.9": lambda params, lr, wd: torch.optim.SGD(params, lr=lr, weight_decay=wd, momentum=0.9),
    "sgd:momentum=0.9,nesterov=true": lambda params, lr, wd: torch.optim.SGD(
        params, lr=lr, weight_decay=wd, momentum=0.9, nesterov=True
    ),
}
"""Each optimiser as a user writes it, and torch's own with the same settings."""


def warmup_cosine(optimiser, total, epoch):
    rising = lr_scheduler.LinearLR(optimiser, start_factor=1 / 8, total_iters=7)
    falling = lr_scheduler.CosineAnnealingLR(optimiser, T_max=total - 8)
    return lr_scheduler.SequentialLR(optimiser, [rising, falling], milestones=[8])


SCHEDULERS = {
    "cosine": lambda optimiser, total, epoch: lr_scheduler.CosineAnnealingLR(optimiser, T_max=total),
    "constant": lambda optimiser, total, epoch: lr_scheduler.ConstantLR(optimiser, factor=1.0),
    "step:every=2,gamma=0.3": lambda optimiser, total, epoch: lr_scheduler.StepLR(optimiser, 2 * epoch, 0.3),
    "step:milestones=1+3": lambda optimiser, total, epoch: lr_scheduler.MultiStepLR(optimiser, [epoch, 3 * epoch]),
    f"warmup_cosine:warmup={8 / TOTAL}": warmup_cosine,
}
"""Each schedule, and torch's scheduler that is stepped after every training step."""


def draws(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_every_optimiser_and_schedule_has_a_reference():
    assert {text.partition(":")[0] for text in REFERENCES} == set(OPTIMISERS)
    assert {text.partition(":")[0] for text in SCHEDULERS} == set(SCHEDULES)


@pytest.mark.parametrize("text", REFERENCES)
def test_an_optimiser_equals_torchs_own_with_a_changing_rate(text):
    start = {"a": draws(1, 4, 3), "b": draws(2, 5)}
    plain = [leaf.clone().requires_grad_() for leaf in start.values()]
    reference = REFERENCES[text](plain, 0.1, 0.3)
    schedule = lr_scheduler.CosineAnnealingLR(reference, T_max=20)
    ours = {name: leaf.clone() for name, leaf in start.items()}
    optimiser = LeafOptimiser(ours, weight_decay=0.3, optimiser=make_optimiser(Spec.parse(text)))
    for step in range(20):
        gradients = {"a": draws(10 + step, 4, 3), "b": draws(50 + step, 5)}
        for leaf, gradient in zip(plain, gradients.values(), strict=True):
            leaf.grad = gradient.clone()
        rate = 0.1 * CosineSchedule().factor(step, 20, 1)
        assert rate == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        reference.step()
        schedule.step()
        optimiser.update(gradients, rate)
    for leaf, own in zip(plain, ours.values(), strict=True):
        torch.testing.assert_close(own, leaf.detach(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("text", SCHEDULERS)
def test_a_schedule_equals_torchs_own_for_numbers_and_on_the_device(text):
    schedule = make_schedule(Spec.parse(text))
    reference = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    torchs = SCHEDULERS[text](reference, TOTAL, EPOCH)
    for done in range(TOTAL):
        counter = torch.tensor(done, dtype=torch.float64)
        expected = pytest.approx(torchs.get_last_lr()[0], rel=1e-12, abs=1e-16)
        assert 0.5 * schedule.factor(done, TOTAL, EPOCH) == expected
        assert (0.5 * schedule.factor(counter, TOTAL, EPOCH)).item() == expected
        reference.step()
        torchs.step()


@pytest.mark.parametrize("text", REFERENCES)
def test_a_stack_of_models_with_different_rates_is_updated_as_each_model_alone(text):
    """The second leaf is frozen in the last row."""
    kind = make_optimiser(Spec.parse(text))
    stack = {"a": draws(1, 4, 8), "b": draws(2, 3, 16)}  # Whole vectors: a remainder is rounded differently.
    rates, rows = [0.01, 0.03], [0, 0, 1, 0]
    members = [{name: leaf[row].clone() for name, leaf in stack.items() if row < len(leaf)} for row in range(4)]
    together = LeafOptimiser(stack, 0.1, [torch.tensor(rate, dtype=torch.float64) for rate in rates], rows, kind)
    alone = [LeafOptimiser(member, 0.1, optimiser=kind) for member in members]
    for step in range(5):
        gradients = {"a": draws(100 + step, 4, 8), "b": draws(200 + step, 3, 16)}
        together.update(gradients)
        for row, optimiser in enumerate(alone):
            own = {name: leaf[row] for name, leaf in gradients.items() if row < len(leaf)}
            optimiser.update(own, rates[rows[row]])
    for row, (member, optimiser) in enumerate(zip(members, alone, strict=True)):
        for name, leaf in member.items():
            assert torch.equal(stack[name][row], leaf)
        for name, moment in optimiser.moments().items():
            assert torch.equal(together.moments()[name][row], moment)


def test_the_cosine_starts_at_the_rate_and_ends_near_zero():
    rates = [0.5 * CosineSchedule().factor(done, 1000, 10) for done in range(1000)]
    assert rates[0] == 0.5
    assert 0 < rates[-1] < 0.5e-5
    assert all(late < early for early, late in itertools.pairwise(rates))


RECIPES = [
    {"optimizer": "sgd:momentum=0.9,nesterov=true", "schedule": "step:every=1", "lr": 0.05},
    {"optimizer": "adam", "schedule": "warmup_cosine:warmup=0.3"},
    {"optimizer": "sgd", "schedule": "constant", "lr": 0.05},
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["optimizer"])
def test_both_drivers_train_backprop_as_torch_does(recipe):
    """Plain torch: autograd, torch's optimiser and torch's scheduler on the same batches."""
    resolved = tiny.resolved("bp", epochs=3, weight_decay=0.1, **recipe)
    data = resolved.source.load(None)
    single = Single(resolved, data, tiny.CPU)
    ours = [tiny.train(driver, 3)[0].params for driver in (single, Fleet([resolved], data, tiny.CPU))]

    params = {name: leaf.clone().requires_grad_() for name, leaf in resolved.params().items()}
    optimiser = REFERENCES[recipe["optimizer"]](list(params.values()), resolved.config.lr, 0.1)
    steps = resolved.steps_per_epoch
    scheduler = {
        "step:every=1": lambda: lr_scheduler.StepLR(optimiser, steps, 0.1),
        "constant": lambda: lr_scheduler.ConstantLR(optimiser, factor=1.0),
        "warmup_cosine:warmup=0.3": lambda: lr_scheduler.SequentialLR(
            optimiser,
            [
                lr_scheduler.LinearLR(optimiser, 1 / round(0.9 * steps), total_iters=round(0.9 * steps) - 1),
                lr_scheduler.CosineAnnealingLR(optimiser, T_max=3 * steps - round(0.9 * steps)),
            ],
            milestones=[round(0.9 * steps)],
        ),
    }[recipe["schedule"]]()
    for epoch in range(3):
        for index in single._feed.order(1, epoch)["index"]:
            loss = torch.nn.functional.cross_entropy(
                resolved.net.forward(params, data.train_x[index].double()), data.train_y[index]
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            scheduler.step()
    for found in ours:
        assert tiny.distance(found, {name: leaf.detach() for name, leaf in params.items()}) < 1e-12


@pytest.mark.parametrize("method", ["kp", "state_bridge", "dfa"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["optimizer"])
def test_a_fleet_of_several_learning_rates_equals_its_models_alone(method, recipe):
    """Frozen baselines among them; the rates are not sorted."""
    texts = [(method, 0.02), (f"{method}:shell=method", 0.005), (method, 0.005), (f"{method}:shell=method", 0.02)]
    runs = [tiny.resolved(text, weight_decay=0.5, **{**recipe, "lr": lr}) for text, lr in texts]
    assert len({run.fleet_key() for run in runs}) == 1
    data = runs[0].source.load(None)
    together = tiny.train(Fleet(runs, data, tiny.CPU), 2)
    for run, found in zip(runs, together, strict=True):
        (alone,) = tiny.train(Single(run, data, tiny.CPU), 2)
        assert tiny.distance(found.params, alone.params) < 1e-11
        assert tiny.distance(found.state, alone.state) < 1e-11 if alone.state else True
        assert found.moments.keys() == alone.moments.keys()
        assert not tiny.same_bits(alone.params, run.params())


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe["optimizer"])
def test_a_fleet_of_several_learning_rates_resumes_to_the_same_bits(recipe):
    runs = [tiny.resolved(epochs=3, seeds=seed, **{**recipe, "lr": lr}) for seed, lr in ((1, 0.02), (2, 0.005))]
    data = runs[0].source.load(None)
    uninterrupted = Fleet(runs, data, tiny.CPU)
    middle = tiny.train(uninterrupted, 1)
    end = tiny.train(uninterrupted, 2)
    resumed = Fleet(runs, data, tiny.CPU)
    resumed.restore(middle)
    for one, other in zip(tiny.train(resumed, 2), end, strict=True):
        assert tiny.same_bits(one.params, other.params)
        assert tiny.same_bits(one.moments, other.moments)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"optimizer": "sdg"}, "Did you mean 'sgd'"),
        ({"optimizer": "sgd:nesterov=true"}, "needs a momentum"),
        ({"optimizer": "sgd:momentum=1"}, "less than 1"),
        ({"optimizer": "adam:beta3=1"}, "beta3"),
        ({"optimizer": "adam:eps=0"}, "more than 0"),
        ({"schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"schedule": "step"}, "step:every=30"),
        ({"schedule": "step:every=3,milestones=2"}, "step:every=30"),
        ({"schedule": "step:milestones=2+x"}, "2+x"),
        ({"schedule": "warmup_cosine:warmup=1"}, "below 1"),
    ],
)
def test_a_wrong_optimiser_or_schedule_is_refused(settings, named):
    with pytest.raises(InputError) as caught:
        tiny.resolved(**settings)
    assert named in str(caught.value)
