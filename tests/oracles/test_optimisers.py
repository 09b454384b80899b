"""Our AdamW and cosine schedule against torch's own."""

from __future__ import annotations

import itertools

import pytest
import torch

from walkback.training.optimisers import AdamW, cosine, cosine_tensor


def draws(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_adamw_equals_torchs_own_with_a_changing_rate():
    start = {"a": draws(1, 4, 3), "b": draws(2, 5)}
    plain = [leaf.clone().requires_grad_() for leaf in start.values()]
    reference = torch.optim.AdamW(plain, lr=0.1, weight_decay=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(reference, T_max=20)
    ours = {name: leaf.clone() for name, leaf in start.items()}
    optimiser = AdamW(ours, weight_decay=0.3)
    rates = [cosine(0.1, done, 20) for done in range(20)]
    for step in range(20):
        gradients = {"a": draws(10 + step, 4, 3), "b": draws(50 + step, 5)}
        for leaf, gradient in zip(plain, gradients.values(), strict=True):
            leaf.grad = gradient.clone()
        assert rates[step] == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        reference.step()
        schedule.step()
        optimiser.update(gradients, rates[step])
    for leaf, own in zip(plain, ours.values(), strict=True):
        torch.testing.assert_close(own, leaf.detach(), rtol=1e-12, atol=1e-14)


def test_adamw_updates_a_stack_of_models_as_each_model_alone():
    stack = {"a": draws(1, 3, 4)}
    members = [{"a": stack["a"][row].clone()} for row in range(3)]
    together = AdamW(stack, weight_decay=0.1)
    alone = [AdamW(member, weight_decay=0.1) for member in members]
    for step in range(5):
        gradient = draws(100 + step, 3, 4)
        together.update({"a": gradient}, 0.01)
        for row, optimiser in enumerate(alone):
            optimiser.update({"a": gradient[row]}, 0.01)
    for row, member in enumerate(members):
        assert torch.equal(stack["a"][row], member["a"])


def test_the_schedule_starts_at_the_rate_and_ends_near_zero():
    rates = [cosine(0.5, done, 1000) for done in range(1000)]
    on_device = cosine_tensor(0.5, torch.arange(1000, dtype=torch.float64), 1000)
    torch.testing.assert_close(on_device, torch.tensor(rates, dtype=torch.float64), rtol=1e-9, atol=1e-15)
    assert rates[0] == 0.5
    assert 0 < rates[-1] < 0.5e-5
    assert all(late < early for early, late in itertools.pairwise(rates))
