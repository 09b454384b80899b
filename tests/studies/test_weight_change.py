"""Measurements before the first step, and how far training moves weights and block outputs."""

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
from walkback.judge.weight_growth import block_move, branch_growth, matrix_move, matrix_product
from walkback.runs import store
from walkback.runs.measurement_files import epoch_file
from walkback.runs.train_runs import ProgressListener, TrainOptions, train_resolved
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.results import Case, Results

CPU = torch.device("cpu")
CONFIGS = SCALE.runs(["bp", "dfa"], seeds=[1, 2])


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> list[Case]:
    """Trained in fleets; each run is measured before its first step and at its end."""
    out = tmp_path_factory.mktemp("runs")
    resolved_runs = [resolve(config) for config in CONFIGS]
    monitor = EpochMonitor(epochs_to_measure={resolved.name: (0, 3) for resolved in resolved_runs})
    train_resolved(resolved_runs, TrainOptions(out=out, device="cpu"), ProgressListener(), observer=monitor)
    measurer = RunMeasurer(None, CPU)
    for resolved in resolved_runs:
        run = store.open_run(out / resolved.name)
        measurer.measure(run, resolved).save(run.path / "measurements.npz")
    return Results(out).cases(CONFIGS)


def test_epoch_0_is_the_initial_network(cases):
    for case in cases:
        resolved = case.resolved
        tests = TestSet(resolved.source.load(None), resolved.dtype, CPU)
        expected = measure_network(resolved, resolved.params(), resolved.state(), tests)
        measured = case.measurements_after(0)
        assert measured.arrays.keys() == expected.arrays.keys()
        for name, values in expected.arrays.items():
            np.testing.assert_array_equal(measured.arrays[name], values, err_msg=name)
        assert not np.array_equal(measured.arrays["loss"], case.measurements_after(3).arrays["loss"])


class Stops(EpochMonitor):
    """Interrupts the training before its second epoch is logged."""

    def after_epoch(self, driver, *words, **named):
        if driver.epoch == 2:
            raise KeyboardInterrupt
        return super().after_epoch(driver, *words, **named)


@pytest.mark.slow
def test_a_resumed_run_is_not_measured_again_as_epoch_0(tmp_path):
    resolved_runs = [resolve(config) for config in SCALE.runs(["dfa"], seeds=[1])]
    epochs = {resolved_runs[0].name: (0,)}
    options = TrainOptions(out=tmp_path, device="cpu", resume=True, checkpoint_seconds=0)
    with pytest.raises(KeyboardInterrupt):
        train_resolved(resolved_runs, options, ProgressListener(), observer=Stops(epochs_to_measure=epochs))
    path = tmp_path / resolved_runs[0].name / epoch_file(0)
    stamp = path.stat().st_mtime_ns
    (result,) = train_resolved(
        resolved_runs, options, ProgressListener(), observer=EpochMonitor(epochs_to_measure=epochs)
    )
    assert result.status == "done"
    assert path.stat().st_mtime_ns == stamp


def test_an_epoch_without_a_measurement_is_an_input_error(cases):
    with pytest.raises(InputError, match="without being measured after epoch 1"):
        cases[0].measurements_after(1)


def test_weight_norms_match_a_direct_computation(cases):
    case = cases[-1]
    first, last = case.resolved.params(), store.open_run(case.run.path).model()
    m = case.measurements
    assert m.facts["leaves"] == list(first)
    for place, name in enumerate(m.facts["leaves"]):
        start, end = first[name].double().numpy(), last[name].astype(np.float64)
        found = [m.arrays[key][place] for key in ("weight_first", "weight_last", "weight_moved")]
        assert found == pytest.approx([np.linalg.norm(start), np.linalg.norm(end), np.linalg.norm(end - start)])
    assert m.arrays["weight_moved"].min() > 0
    # All parameters of a block as one vector, and its two matrices.
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


def test_measuring_draws_the_initial_weights_once_and_is_reproducible(cases, monkeypatch):
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
    net, branch_norm = case.resolved.net, case.measurements_after(0).arrays["branch_norm"]
    x, _ = TestSet(case.resolved.source.load(None), case.resolved.dtype, CPU).batches()[0]
    wide = {name: leaf.double() for name, leaf in case.resolved.params().items()}

    def part(name: str) -> dict[str, torch.Tensor]:
        return {key.removeprefix(name): leaf for key, leaf in wide.items() if key.startswith(name)}

    h = net.stem(part("stem."), x.double())
    for block in range(net.depth):
        f = net.branch(part(f"blocks.{block}."), h)
        assert branch_norm[block] == pytest.approx(f.norm(dim=1).numpy())
        h = h + f


def planted(moved=(4.0, 9.0, 16.0, 1.0)):
    """Two blocks; the norms of w1 and w2 are 1 and 2 at first, 3 and 5 at the end."""
    leaves = ["stem.weight", *(f"blocks.{b}.{w}.weight" for b in (0, 1) for w in ("w1", "w2")), "head.out.weight"]
    arrays = {
        "weight_first": np.array([7.0, 1, 2, 1, 2, 7]),
        "weight_last": np.array([7.0, 3, 5, 3, 5, 7]),
        "weight_moved": np.array([100.0, *moved, 100.0]),
    }
    return changed(fake(blocks=2), {"leaves": leaves}, **arrays)


def test_factors_are_geometric_means_over_blocks_only():
    m = planted()
    assert matrix_move(m).known == pytest.approx((4 * 4.5 * 16 * 0.5) ** 0.25)
    assert block_move(m).known == pytest.approx((np.hypot(4, 9) * np.hypot(16, 1) / 5) ** 0.5)
    assert matrix_product(m).known == pytest.approx(15)
    assert block_move(planted((0.0, 0.0, 1.0, 1.0))).known == 0  # Frozen.
    first, last = fake(blocks=2, branch=[1.0, 2.0]), fake(blocks=2, branch=[100.0, 8.0])
    assert branch_growth(first, last).known == pytest.approx(20)


def test_missing_measurements_give_no_factor():
    bare = fake(blocks=2)
    for number in (block_move(bare), matrix_move(bare), matrix_product(bare), branch_growth(bare, bare)):
        assert number.status == "missing"
    other = changed(planted(), {"leaves": [f"blocks.{b}.{w}" for b in (0, 1) for w in ("qkv", "proj", "fc1")]})
    assert not matrix_move(other).ok
    assert "w1 and w2" in matrix_move(other).reason
    assert block_move(other).ok
    assert branch_growth(fake(branch=0.0), fake(branch=1.0)).status == "invalid"
