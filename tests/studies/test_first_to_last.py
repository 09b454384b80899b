"""Networks before their first step, and how far training takes them: looked at, measured, and worked out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fake_measurements import changed, fake
from mini import SCALE

from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.auditing.measure_run import RunMeasurer, measure_network
from walkback.core.errors import InputError
from walkback.data.feed import TestSet
from walkback.judge.inflation import block_move, branch_growth, matrix_move, matrix_product
from walkback.runs import store, train_runs
from walkback.runs.measurement_files import epoch_file
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.results import Case, Results

CPU = torch.device("cpu")
CONFIGS = SCALE.runs(["bp", "dfa"], seeds=[1, 2])


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> list[Case]:
    """Trained in fleets, each looked at before its first step and at its end."""
    out = tmp_path_factory.mktemp("runs")
    watcher = EpochMonitor(epochs_to_measure={resolve(config).name: (0, 3) for config in CONFIGS})
    train_runs.train_configs(
        CONFIGS, train_runs.TrainOptions(out=out, device="cpu"), train_runs.ProgressListener(), observer=watcher
    )
    measurer = RunMeasurer(None, CPU)
    for config in CONFIGS:
        resolved = resolve(config)
        found = store.open_run(out / resolved.name)
        measurer.measure(found, resolved).save(found.path / "measurements.npz")
    return Results(out).cases(CONFIGS)


def test_epoch_0_is_the_network_as_it_begins(cases):
    for case in cases:
        resolved = case.resolved
        tests = TestSet(resolved.source.load(None), resolved.dtype, CPU)
        expected = measure_network(resolved, resolved.params(), resolved.state(), tests)
        seen = case.close(0)
        assert seen.arrays.keys() == expected.arrays.keys()
        for name, values in expected.arrays.items():
            np.testing.assert_array_equal(seen.arrays[name], values, err_msg=name)
        assert not np.array_equal(seen.arrays["loss"], case.close(3).arrays["loss"])


class Stops(EpochMonitor):
    """Stops the training when its second epoch is to be logged."""

    def after_epoch(self, driver, *words, **named):
        if driver.epoch == 2:
            raise KeyboardInterrupt
        return super().after_epoch(driver, *words, **named)


def test_a_run_that_is_gone_on_with_was_looked_at_when_it_began(tmp_path):
    (config,) = SCALE.runs(["dfa"], seeds=[1])
    name = resolve(config).name
    options = train_runs.TrainOptions(out=tmp_path, device="cpu", resume=True, checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        train_runs.train_configs(
            [config], options, train_runs.ProgressListener(), observer=Stops(epochs_to_measure={name: (0,)})
        )
    path = tmp_path / name / epoch_file(0)
    stamp = path.stat().st_mtime_ns
    (result,) = train_runs.train_configs(
        [config], options, train_runs.ProgressListener(), observer=EpochMonitor(epochs_to_measure={name: (0,)})
    )
    assert result.status == "done"
    assert path.stat().st_mtime_ns == stamp


def test_what_was_not_looked_at_is_said(cases):
    with pytest.raises(InputError, match="without being measured after epoch 1"):
        cases[0].close(1)


def test_sizes_of_weights_are_those_written_out_by_hand(cases):
    case = cases[-1]
    first, last = case.resolved.params(), store.open_run(case.run.path).model()
    m = case.measurements
    assert m.facts["leaves"] == list(first)
    for place, name in enumerate(m.facts["leaves"]):
        start, end = first[name].double().numpy(), last[name].astype(np.float64)
        found = [m.arrays[key][place] for key in ("weight_first", "weight_last", "weight_moved")]
        assert found == pytest.approx([np.linalg.norm(start), np.linalg.norm(end), np.linalg.norm(end - start)])
    assert m.arrays["weight_moved"].min() > 0
    # A block's parameters as one vector, and its two matrices.
    moves, products = [], []
    for block in range(2):
        own = [name for name in last if name.startswith(f"blocks.{block}.")]
        start, end = (
            np.concatenate([np.ravel(np.asarray(of[name], dtype=float)) for name in own]) for of in (first, last)
        )
        moves.append(np.linalg.norm(end - start) / np.linalg.norm(start))
        products.append(np.prod([np.linalg.norm(last[f"blocks.{block}.{w}.weight"]) for w in ("w1", "w2")]))
    assert block_move(m).known == pytest.approx(np.sqrt(np.prod(moves)))
    assert matrix_product(m).known == pytest.approx(np.sqrt(np.prod(products)))


def test_measuring_draws_the_first_weights_once_and_gives_the_same_numbers(cases, monkeypatch):
    case, drawn, draw = cases[-1], [], ResolvedRun.params
    monkeypatch.setattr(ResolvedRun, "params", lambda resolved: (drawn.append(resolved.name), draw(resolved))[1])
    again = RunMeasurer(None, CPU).measure(store.open_run(case.run.path), case.resolved)
    assert drawn == [case.resolved.name]
    assert again.facts == case.measurements.facts
    assert again.arrays.keys() == case.measurements.arrays.keys()
    for name, values in case.measurements.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], values, err_msg=name)


def test_block_outputs_are_the_residual_branches(cases):
    case = cases[0]
    net, seen = case.resolved.net, case.close(0).arrays["branch_norm"]
    x, _ = TestSet(case.resolved.source.load(None), case.resolved.dtype, CPU).batches()[0]
    wide = {name: leaf.double() for name, leaf in case.resolved.params().items()}

    def part(name: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(name): leaf for key, leaf in wide.items() if key.startswith(name)}

    h = net.stem(part("stem."), x.double())
    for block in range(net.depth):
        f = net.branch(part(f"blocks.{block}."), h)
        assert seen[block] == pytest.approx(f.norm(dim=1).numpy())
        h = h + f


def planted(moved=(4.0, 9.0, 16.0, 1.0)):
    """Two blocks, whose w1 and w2 begin at 1 and 2 and end at 3 and 5."""
    leaves = ["stem.weight", *(f"blocks.{b}.{w}.weight" for b in (0, 1) for w in ("w1", "w2")), "head.out.weight"]
    arrays = {
        "weight_first": np.array([7.0, 1, 2, 1, 2, 7]),
        "weight_last": np.array([7.0, 3, 5, 3, 5, 7]),
        "weight_moved": np.array([100.0, *moved, 100.0]),
    }
    return changed(fake(blocks=2), {"leaves": leaves}, **arrays)


def test_factors_are_averaged_over_blocks_alone_and_geometrically():
    m = planted()
    assert matrix_move(m).known == pytest.approx((4 * 4.5 * 16 * 0.5) ** 0.25)
    assert block_move(m).known == pytest.approx((np.hypot(4, 9) * np.hypot(16, 1) / 5) ** 0.5)
    assert matrix_product(m).known == pytest.approx(15)
    assert block_move(planted((0.0, 0.0, 1.0, 1.0))).known == 0  # Frozen.
    first, last = fake(blocks=2, branch=[1.0, 2.0]), fake(blocks=2, branch=[100.0, 8.0])
    assert branch_growth(first, last).known == pytest.approx(20)


def test_what_was_not_measured_has_no_factor():
    bare = fake(blocks=2)
    for number in (block_move(bare), matrix_move(bare), matrix_product(bare), branch_growth(bare, bare)):
        assert number.status == "missing"
    other = changed(planted(), {"leaves": [f"blocks.{b}.{w}" for b in (0, 1) for w in ("qkv", "proj", "fc1")]})
    assert matrix_move(other).reason == "its blocks are not made of w1 and w2"
    assert block_move(other).ok
    assert branch_growth(fake(branch=0.0), fake(branch=1.0)).status == "invalid"
