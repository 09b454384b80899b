"""Estimates of training time on a machine where others compute."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

import tiny
from walkback.cli.progress import ProgressBar
from walkback.training.planning import cost_model, fleet_plan
from walkback.training.planning import plan_fleets as planning
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.time_left import TimeLeft


class Clock:
    """A clock that the test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def group(seconds: float, epochs: int = 10) -> FleetGroup:
    return FleetGroup((tiny.resolved(epochs=epochs),), "fleet", seconds=seconds, memory=1, flops=1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("real", "factor"), [(1e-5, 1.3), (1e-3, 1.3), (1e-1, 6)])
def test_noisy_timings_give_the_time_of_an_idle_machine(monkeypatch, seed, real, factor):
    """Four of five timings are up to 30 times too long, as where five processes share a core."""
    clock, draws = Clock(), random.Random(seed)
    monkeypatch.setattr(cost_model.time, "perf_counter", clock)

    def work() -> None:
        clock.now += real * (1 + 0.05 * draws.random() if draws.random() < 0.2 else draws.uniform(2, 30))

    found = [cost_model._shortest_time(work, torch.device("cpu")) for _ in range(40)]
    # A step has dozens of matmuls. Large ones are timed a few times only; the first steps correct the plan.
    assert sum(found) / len(found) < factor * real
    assert min(found) >= real


def test_a_small_step_is_timed_with_the_one_thread_that_trains_it(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads: list[int] = []
    known = cost_model.CostModel(tiny.CPU, 1e9, lambda *_: threads.append(torch.get_num_threads()) or 1e-6)
    monkeypatch.setattr(planning, "CostModel", type("Known", (), {"of": staticmethod(lambda device: known)}))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        planning.plan_fleets([tiny.resolved()], [()], "fleet", tiny.CPU, 1 << 40)
        assert set(threads) == {1}
        threads.clear()
        monkeypatch.setattr(fleet_plan, "SMALL_STEP", 0)
        planning.plan_fleets([tiny.resolved()], [()], "fleet", tiny.CPU, 1 << 40)
        assert set(threads) == {2}
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("planned", "real"), [(3300.0, 120.0), (20.0, 400.0)])
def test_the_first_steps_correct_a_plan_that_is_far_off(planned, real):
    clock, one = Clock(), group(planned)
    left = TimeLeft([one], clock)
    left.started(one)
    left.stepped(1)  # The step in which the fleet is built.
    said = []
    for _ in range(one.steps_left - 1):
        clock.now += real / one.steps_left
        said.append(left.stepped(1))
    corrected = [each for each in said if each is not None]
    assert corrected == [pytest.approx(real, rel=0.01)]
    assert said.index(corrected[0]) < one.steps_left / 2


@pytest.mark.parametrize(("planned", "real"), [(120.0, 150.0), (4.0, 30.0)])
def test_a_plan_that_is_nearly_right_or_short_is_not_corrected(planned, real):
    clock, one = Clock(), group(planned)
    left = TimeLeft([one], clock)
    left.started(one)
    for _ in range(one.steps_left):
        clock.now += real / one.steps_left
        assert left.stepped(1) is None


def test_the_time_of_one_fleet_corrects_that_of_the_others():
    clock, groups = Clock(), [group(100.0), group(900.0)]
    left = TimeLeft(groups, clock)
    left.started(groups[0])
    found = None
    left.stepped(1)
    while found is None:
        clock.now += 0.1 * 100 / groups[0].steps_left
        found = left.stepped(1)
    assert found == pytest.approx(100.0, rel=0.01)


def test_the_correction_is_printed_below_the_plan(capsys, monkeypatch):
    clock, one = Clock(), replace(group(3300.0), compile_seconds=0.0)
    monkeypatch.setattr("walkback.cli.progress.TimeLeft", lambda groups: TimeLeft(groups, clock))
    bar = ProgressBar(quiet=False)
    bar.planned([one], one.steps_left)
    bar.started(one)
    for _ in range(one.steps_left):
        bar.stepped(1)
        clock.now += 60 / one.steps_left
    bar.close()
    shown = capsys.readouterr().err
    assert "about 55 min" in shown
    assert "about 60 s" in shown.split("about 55 min")[1]
