"""Benches: they run, their arithmetic on given times, and their output. No test asserts a time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from walkback.bench import BENCHES, costs
from walkback.bench.benches import data, diagnose, fleet, loop, rules, scaling, startup
from walkback.bench.eager_loop import plain_loop, plain_net, plain_step
from walkback.bench.loader import PerSampleTransforms, synthetic_images
from walkback.bench.result import BenchOptions, BenchResult, BenchRow, BenchTarget, Spread
from walkback.bench.setup import BENCH_BATCH, TINY_STEPS, BenchScale, scale
from walkback.bench.timing import interleaved, round_seconds
from walkback.bench.worker_pool import WorkerPool
from walkback.cli.main import main
from walkback.core.errors import EXIT_INPUT, InputError
from walkback.credit import RULES
from walkback.data.feed import PAD, Feed
from walkback.nets import ARCHS
from walkback.runs.provenance import without_paths
from walkback_papers import run_studies
from walkback_papers.benches import paper
from walkback_papers.scale import PAPER

CPU = torch.device("cpu")
QUICK = BenchOptions(quick=True, device="cpu")


def assert_well_formed(result: BenchResult) -> None:
    """Rows have times or a reason, quartiles are ordered, and the result survives JSON."""
    assert result.rows
    for row in result.rows:
        if row.reason:
            assert row.ms is None
            assert row.ratio is None
            continue
        for spread in filter(None, (row.ms, row.ratio, row.second)):
            assert 0 < spread.low <= spread.median <= spread.high
    assert BenchResult.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


class TestTiming:
    def test_tasks_alternate_and_the_first_round_is_not_counted(self):
        done = []
        tasks = {"a": lambda: done.append("a"), "b": lambda: done.append("b")}
        announced = []
        seconds = interleaved(tasks, 3, CPU, announced.append)
        assert done == announced == ["a", "b"] * 4
        assert [len(seconds[name]) for name in "ab"] == [3, 3]

    def test_a_short_task_is_repeated_until_it_takes_at_least_seconds(self, monkeypatch):
        from walkback.bench import timing

        clock = iter(range(1000))
        monkeypatch.setattr(timing.time, "perf_counter", lambda: float(next(clock)))
        done = []
        seconds = interleaved({"a": lambda: done.append("a")}, 2, CPU, at_least=5.0)
        # One warm-up, one run to measure that it takes a second, then two rounds of five.
        assert len(done) == 1 + 1 + 2 * 5
        assert seconds == {"a": [0.2, 0.2]}

    def test_rounds_have_a_minimum_length_on_a_gpu_only(self):
        assert round_seconds(torch.device("cuda"), quick=False) >= 0.3
        assert round_seconds(torch.device("cuda"), quick=True) == round_seconds(CPU, quick=False) == 0

    def test_a_failing_task_leaves_garbage_collection_enabled(self):
        import gc

        with pytest.raises(ZeroDivisionError):
            interleaved({"a": lambda: 1 / 0}, 1, CPU)
        assert gc.isenabled()

    def test_spread_is_median_and_quartiles(self):
        assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0)
        assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)

    def test_targets_are_compared_with_the_median(self):
        most = [BenchTarget("ms", most=200.0)]
        assert BenchRow.of("a", [0.1, 0.2, 0.6], [1.0], most).is_met is True
        assert BenchRow.of("a", [0.1, 0.3, 0.6], [1.0], most).is_met is False
        least = [BenchTarget("ratio", least=3.0)]
        assert BenchRow.of("a", [0.1], [2.0, 3.0, 4.0], least).is_met is True
        assert BenchRow.of("a", [0.1], [2.9, 2.9, 4.0], least).is_met is False
        second = [*least, BenchTarget("second", most=0.95)]
        assert BenchRow.of("a", [0.1], [3.0], second, second=[0.95]).is_met is True
        assert BenchRow.of("a", [0.1], [3.0], second, second=[0.96]).is_met is False
        assert BenchRow.of("a", [0.1], [1.0]).is_met is None


class PoolInThisProcess:
    """A WorkerPool that starts no processes."""

    def __init__(self, shares, data):
        from walkback.training.fleet import Fleet

        self._drivers = [Fleet(resolved_runs, data, CPU) for share in shares for resolved_runs in share]

    def epoch(self):
        for driver in self._drivers:
            driver.train_epoch(lambda _: None)

    def close(self):
        pass


class TestBenches:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name, marks=pytest.mark.slow if name in ("convoy", "fleet", "scaling", "loop", "paper") else ()
            )
            for name in BENCHES.names()
            if name != "rules"
        ],
    )
    def test_each_runs_and_its_result_survives_json(self, name, monkeypatch):
        monkeypatch.setattr(loop, "WorkerPool", PoolInThisProcess)
        result = BENCHES.get(name)(QUICK)
        assert result.bench == name
        assert result.repeats == 2
        assert_well_formed(result)

    @pytest.mark.slow
    def test_rules_runs(self):
        result = rules.run(BenchOptions(quick=True, device="cpu", methods=("bp", "dfa", "kp"), models=(2,)))
        assert_well_formed(result)
        names = ["bp", "dfa", "kp"]
        assert [row.what for row in result.rows] == [f"{name}, {where}" for where in ("alone", "M=2") for name in names]

    @pytest.mark.slow
    def test_fleets_of_every_architecture(self):
        archs = tuple(name for name in ARCHS.names() if _has_plain_version(name))
        assert len(archs) > 3
        result = fleet.run(BenchOptions(quick=True, device="cpu", archs=archs, methods=("bp",)))
        assert_well_formed(result)
        rows = ("plain loop", "bp, alone", "bp, M=2")
        assert [row.what for row in result.rows] == [f"{arch}: {row}" for arch in archs for row in rows]

    def test_a_method_that_is_not_defined_gets_a_row_with_a_reason(self, monkeypatch):
        monkeypatch.setattr(fleet, "interleaved", lambda tasks, *_: {name: [0.1] for name in tasks})
        result = fleet.run(BenchOptions(quick=True, device="cpu", archs=("small_cnn",), methods=("kp",)))
        (refused,) = [row for row in result.rows if row.reason]
        assert refused.what == "small_cnn: kp"
        assert "small_cnn" in refused.reason

    def test_a_fleet_that_does_not_fit_gets_a_row_with_a_reason(self, monkeypatch):
        monkeypatch.setattr(fleet, "interleaved", lambda tasks, *_: {name: [0.1] for name in tasks})
        monkeypatch.setattr(fleet, "Fleet", _no_memory)
        result = fleet.run(BenchOptions(quick=True, device="cpu"))
        assert [row.what for row in result.rows if row.reason] == ["resmlp: M=2"]

    def test_quick_sizes_are_tiny_and_full_sizes_are_the_papers(self):
        assert scale(True, steps=99).steps == TINY_STEPS
        net = BenchScale().resolved("bp").net
        assert (net.d, net.depth, net.input_shape) == (256, 4, (3072,))
        assert scale(False, "vit_mini").resolved("bp").net.input_shape == (3, 32, 32)


def _no_memory(*_):
    raise torch.OutOfMemoryError("CUDA out of memory")


def _has_plain_version(arch):
    try:
        plain_net(scale(True, arch).resolved("bp").net)
    except InputError:
        return False
    return True


def plain_net_or_skip(small, arch):
    """A bench's run and the plain version of its network; without one it cannot be benched against a plain loop."""
    try:
        resolved = scale(small, arch).resolved("bp")
        return resolved, plain_net(resolved.net)
    except InputError as error:
        pytest.skip(str(error))


class TestPlainLoop:
    """The plain modules compute the same functions as walkback's networks."""

    @pytest.mark.parametrize("arch", ARCHS.names())
    def test_plain_net_has_the_same_weights_and_logits(self, arch):
        resolved, plain = plain_net_or_skip(True, arch)
        params = resolved.params()
        buffers = resolved.net.buffers
        leaves = [leaf for name, leaf in params.items() if name not in buffers]
        # Both list their weights from input to output, but in a different order within a layer.
        ours, theirs = (sorted(map(torch.numel, found)) for found in (leaves, plain.parameters()))
        assert ours == theirs
        _copy(plain, params)
        x = torch.randn(16, *resolved.net.input_shape)
        expected = resolved.net.in_training().forward(params, x)
        assert torch.allclose(plain(x), expected, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("arch", ARCHS.names())
    def test_plain_net_has_as_many_weights_at_full_size(self, arch):
        resolved, plain = plain_net_or_skip(False, arch)
        trained = [leaf for name, leaf in resolved.params().items() if name not in resolved.net.buffers]
        assert sum(p.numel() for p in plain.parameters()) == sum(map(torch.numel, trained))

    def test_the_plain_loop_learns_and_returns_its_steps(self):
        size = scale(True)
        dataset, net = size.load(), size.resolved("bp").net
        assert plain_loop(dataset, net, BENCH_BATCH, CPU)() == size.steps
        torch.manual_seed(0)
        module = plain_net(net)
        step, batch = plain_step(module), (dataset.train_x[:64], dataset.train_y[:64])
        loss = torch.nn.functional.cross_entropy
        before = loss(module(batch[0]), batch[1])
        for _ in range(100):
            step(batch)
        assert loss(module(batch[0]), batch[1]) < before / 2

    def test_a_network_without_a_plain_version_is_an_input_error(self):
        with pytest.raises(InputError, match=r"object.*resmlp, student_net, vit_mini or small_cnn"):
            plain_net(object())


def _copy(plain, params):
    """Copy walkback's parameters into a plain module, by leaf name."""
    places = {}
    first = [name.partition(".")[2] for name in params if name.startswith("stem.")]
    modules = list(plain)
    blocks = [index for index, module in enumerate(modules) if type(module).__name__.endswith("Block")]
    stem, head = modules[blocks[0] - 1], [m for m in modules[blocks[-1] + 1 :] if list(m.parameters())]
    for name in first:
        places[f"stem.{name}"] = stem.get_parameter(name)
    for block, index in enumerate(blocks):
        for name, leaf in modules[index].named_parameters():
            places[f"blocks.{block}.{name}"] = leaf
    names = ["head.norm", "head.out"] if len(head) == 2 else ["head"]
    for name, module in zip(names, head, strict=True):
        places |= {f"{name}.{part}": leaf for part, leaf in module.named_parameters()}
    assert len(places) == len(list(plain.parameters()))
    with torch.no_grad():
        for name, leaf in places.items():
            leaf.copy_(params[name].view_as(leaf))


class TestImages:
    def test_per_sample_transforms_equal_a_crop_and_flip_of_the_feed(self):
        """Each sample equals one of all crops and flips of the resident feed, normalised in the same way."""
        dataset = synthetic_images(2, quick=True).data
        feed = Feed(dataset, BENCH_BATCH, "crop_flip", torch.float32, CPU)
        places = torch.cartesian_prod(*map(torch.arange, (1, 2 * PAD + 1, 2 * PAD + 1, 2)))
        for index in range(3):
            indices = dict(zip(("index", "top", "left", "flip"), places.T, strict=True))
            candidates, _ = feed.take({**indices, "index": indices["index"] + index})
            sample, label = PerSampleTransforms(dataset)[index]
            assert (candidates - sample).abs().amax((1, 2, 3)).min() < 1e-5
            assert label == dataset.train_y[index]

    def test_samples_differ_from_call_to_call(self):
        samples = PerSampleTransforms(synthetic_images(2, quick=True).data)
        assert len({samples[0][0].sum().item() for _ in range(20)}) > 5


class TestWorkerPool:
    @pytest.mark.slow
    def test_a_process_trains_on_each_call_and_ends_when_closed(self):
        size = scale(True)
        pool = WorkerPool([[size.resolved_runs("bp", range(2))]], size.load())
        try:
            pool.epoch()
            pool.epoch()
        finally:
            pool.close()
        (process,) = pool._processes
        assert process.exitcode == 0


class TestArithmetic:
    """Ratios and units, computed from given times instead of a clock."""

    def test_a_diagnostic_pass_is_a_share_of_a_whole_epoch(self, monkeypatch):
        steps = TINY_STEPS
        times = {diagnose.EAGER_LOOP: [steps * 0.01, steps * 0.02], diagnose.PASS: [0.039, 0.156]}
        monkeypatch.setattr(diagnose, "interleaved", lambda tasks, *_: {n: times.get(n, [1.0, 1.0]) for n in tasks})
        rows = {row.what: row for row in diagnose.run(QUICK).rows}
        assert rows[diagnose.EAGER_LOOP].ms.median == pytest.approx(1e3 * (3.9 + 7.8) / 2)
        assert (rows[diagnose.PASS].ratio.low, rows[diagnose.PASS].ratio.high) == pytest.approx((0.0125, 0.0175))

    def test_a_fleet_is_compared_with_the_plain_loop_per_model_and_with_bp(self, monkeypatch):
        known = {"plain loop": [0.2], "bp": [0.1], "dfa": [0.09]}
        monkeypatch.setattr(fleet, "interleaved", lambda tasks, *_: {name: known[name] for name in tasks})
        result = fleet.run(BenchOptions(quick=True, device="cpu", models=(2,), methods=("dfa",)))
        found = {row.what: (row.ms.median, row.ratio.median) for row in result.rows}
        step = 100 / TINY_STEPS
        expected = {
            "resmlp: plain loop": (2 * step, 1),
            "resmlp: bp, alone": (step, 2),
            "resmlp: bp, M=2": (step / 2, 4),
            "resmlp: dfa, M=2": (0.9 * step / 2, 4 / 0.9),
        }
        assert found == {name: pytest.approx(pair) for name, pair in expected.items()}
        assert [row.second and row.second.median for row in result.rows] == [None, None, None, pytest.approx(0.9)]

    def test_targets_of_the_fleet_are_for_a_gpu_at_full_size(self):
        def targets(arch, method, models, kind="cuda", quick=False):
            arch_timing = fleet._Arch.__new__(fleet._Arch)
            arch_timing._device, arch_timing._options = torch.device(kind), BenchOptions(quick=quick)
            arch_timing._arch, arch_timing._models = arch, [1, 128]
            return arch_timing._targets(method, models, f"M={models}")

        dfa = "dfa:scale=unit_error,site=input"
        assert targets("resmlp", "bp", 128) == [BenchTarget("ratio", least=100.0)]
        assert targets("vit_mini", "bp", 18) == [BenchTarget("ratio", least=5.0)]
        assert targets("resmlp", "fa:site=input", 128) == [BenchTarget("second", most=1.0)]
        assert targets("resmlp", dfa, 128) == [BenchTarget("second", most=0.95)]
        without_targets = [
            ("resmlp", "bp", 1),
            ("resmlp", dfa, 1),
            ("resmlp", "bp", 128, "cpu"),
            ("resmlp", dfa, 128, "cuda", True),
        ]
        assert [targets(*words) for words in without_targets] == [[], [], [], []]

    def test_a_least_squares_line_is_fitted(self):
        line = scaling.Line.through("a", "M", [1, 2, 4], [5.0, 7.0, 11.0])
        found = (line.slope, line.intercept, line.r2, line.largest_residual)
        assert found == pytest.approx((2.0, 3.0, 1.0, 0.0), abs=1e-12)
        # By hand: 1.5 + x / 2, so the residuals are -0.5, 1, -0.5.
        bent = scaling.Line.through("a", "M", [0, 1, 2], [1.0, 3.0, 2.0])
        assert (bent.slope, bent.intercept) == pytest.approx((0.5, 1.5))
        assert bent.r2 == pytest.approx(1 - 1.5 / 2)
        assert bent.largest_residual == pytest.approx(0.5)

    def test_scaling_gives_times_per_step_or_per_epoch(self, monkeypatch):
        monkeypatch.setattr(scaling, "Fleet", lambda *_: None)
        monkeypatch.setattr(scaling, "interleaved", lambda tasks, *_: {n: [0.1 + i] for i, n in enumerate(tasks)})
        monkeypatch.setitem(scaling.SCALING_SIZES, "quick", (scaling.ScalingPoint(1, 8, 1, 16, 2), ((1, 2, 3),) * 4))
        result = scaling.run(QUICK)
        found = {row.what: row.ms.median for row in result.rows}
        assert found["step against depth: depth=2"] == pytest.approx(1100 / 2)
        assert found["epoch against data: steps=2"] == pytest.approx(1100)
        assert [line["x"] for line in result.settings["lines"]] == ["models", "d", "GFLOP", "depth", "sample"]
        assert result.settings["lines"][0]["slope"] == pytest.approx(500)
        assert len(result.notes) == 5

    def test_images_per_second(self, monkeypatch):
        images = TINY_STEPS * BENCH_BATCH
        known = {data.DATA_BASE: [1.0], data.LOADER_WORKERS: [0.5], data.FEED: [0.1]}
        monkeypatch.setattr(data, "interleaved", lambda tasks, *_: {name: known[name] for name in tasks})
        result = data.run(QUICK)
        assert result.settings["images_per_second"][data.FEED] == pytest.approx(10 * images)
        assert [row.ratio.median for row in result.rows] == pytest.approx([1, 2, 10])

    def test_the_loop_bench_gives_times_per_model(self, monkeypatch):
        monkeypatch.setattr(loop, "WorkerPool", PoolInThisProcess)
        monkeypatch.setattr(loop, "interleaved", lambda tasks, *_: {name: [1.2] for name in tasks})
        result = loop.run(BenchOptions(quick=True, device="cpu", methods=("bp", "dfa"), models=(3,)))
        found = {row.what: row.ratio.median for row in result.rows}
        assert found == pytest.approx({loop.LOOP_BASE: 1, loop.LOOP_WORKERS: 1, loop.TRAIN: 6, loop.SWEEP: 6})

    @pytest.mark.slow
    def test_a_plain_loops_hours_are_its_step_times_the_steps_of_every_run(self, monkeypatch):
        monkeypatch.setattr(paper, "interleaved", lambda tasks, *_: {name: [0.01 * TINY_STEPS] * 2 for name in tasks})
        result = paper.run(QUICK)
        resolved_runs = run_studies.runs_of_studies(run_studies.all_studies().values(), PAPER)
        steps = sum(r.config.epochs * (r.source.train_size // 128) for r in resolved_runs)
        *rows, whole = result.rows
        assert whole.what == f"all: {len(resolved_runs)} runs, {steps:,} steps"
        assert whole.ratio.median == pytest.approx(0.01 * steps / 3600)
        assert whole.ms.median == pytest.approx(10)
        assert sum(row.ratio.median for row in rows) == pytest.approx(whole.ratio.median)
        ep_steps = sum(
            r.config.epochs * (r.source.train_size // 128) for r in resolved_runs if r.config.method.name == "ep"
        )
        ep_cost = costs.bp_steps("ep")[costs.packaged()[0]["device"]]["alone"]
        assert whole.second.median > whole.ratio.median + 0.9 * (ep_cost - 1) * 0.01 * ep_steps / 3600
        assert sum(row.second.median for row in rows) == pytest.approx(whole.second.median)

    def test_every_rule_of_the_catalog_is_timed_or_has_a_reason(self, monkeypatch):
        monkeypatch.setattr(RULES.get("fa"), "refuses", lambda self, net: "it is Sunday")
        monkeypatch.setattr(rules, "Single", lambda *_: None)
        monkeypatch.setattr(rules, "Fleet", lambda *_: None)
        monkeypatch.setattr(rules, "interleaved", lambda tasks, *_: {n: [2.0 if n == "bp" else 3.0] for n in tasks})
        result = rules.run(QUICK)
        assert_well_formed(result)
        reasons = {row.what: row.reason for row in result.rows if row.reason}
        assert list(reasons) == ["fa"]
        assert "it is Sunday" in reasons["fa"]
        timed = {row.what: row.ratio.median for row in result.rows if not row.reason}
        names = [name for name in RULES.names() if name != "fa"]
        assert set(timed) == {f"{name}, {where}" for name in names for where in ("alone", "M=2")}
        assert {name: ratio for name, ratio in timed.items() if ratio != 1.5} == {"bp, alone": 1.0, "bp, M=2": 1.0}

    def test_startup_records_whether_help_imports_torch(self, monkeypatch):
        monkeypatch.setattr(startup, "interleaved", lambda tasks, *_: {name: [0.1] for name in tasks})
        assert startup.run(QUICK).settings == {"help_imports_torch": False}
        monkeypatch.setattr(startup, "IMPORTS_TORCH", "import sys; sys.exit(1)")
        assert startup.run(QUICK).settings == {"help_imports_torch": True}


class TestCommand:
    def test_without_names_the_benches_are_listed(self, capsys):
        assert main(["bench"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == BENCHES.names()
        assert main(["bench", "--json"]) == 0
        assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == BENCHES.names()

    def test_listing_needs_no_torch(self):
        code = "import sys; from walkback.cli.main import main; main(['bench']); sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0

    def test_the_table_shows_every_row(self, capsys, monkeypatch):
        # Narrow tables break words, depending on how long the numbers are.
        monkeypatch.setenv("COLUMNS", "200")
        assert main(["bench", "diagnose", "--quick", "--device", "cpu"]) == 0
        shown = capsys.readouterr().out
        for words in ("bench diagnose", "plain-loop epoch", "float64", "of an epoch", "390 steps"):
            assert words in shown
        assert "MISSED" not in shown
        assert "met" not in shown

    def test_json_has_the_device_and_versions(self, capsys, tmp_path):
        file = tmp_path / "found.json"
        words = ["bench", "diagnose", "--quick", "--repeats", "3", "--device", "cpu", "--json", "--out", str(file)]
        assert main(words) == 0
        printed = json.loads(capsys.readouterr().out)
        assert [printed] == json.loads(file.read_text())
        assert printed["repeats"] == 3
        assert printed["quick"] is True
        assert printed["versions"]["torch"] == torch.__version__
        assert printed["device"].startswith("cpu")
        assert printed["cores"] >= 1
        assert_well_formed(BenchResult.from_json(printed))

    @pytest.mark.parametrize(
        ("words", "part"),
        [
            (["diagnoze"], "'diagnoze'. Did you mean 'diagnose'?"),
            (["fleet", "--repeats", "0"], "--repeats is 0"),
            (["fleet", "--models", "3", "0"], "--models is 0"),
            (["fleet", "--quick", "--methods", "dff"], "'dff'. Did you mean 'dfa'?"),
            (
                ["fleet", "--quick", "--archs", "vit_minni"],
                "'vit_minni'. Did you mean 'vit_mini'?",
            ),
            (["fleet", "--package"], "walkback bench rules --package"),
            (["rules", "--package", "--quick"], "--quick and --methods"),
            (["rules", "--quick", "--methods", "dff"], "'dff'. Did you mean 'dfa'?"),
        ],
    )
    def test_mistakes_are_input_errors_with_a_remedy(self, capsys, words, part):
        assert main(["bench", *words]) == EXIT_INPUT
        assert part in capsys.readouterr().err


def test_recorded_commands_have_no_output_paths():
    words = ["bench", "rules", "--out", "my folder/x", "--quick"]
    assert without_paths(words) == ["bench", "rules", "--quick"]
    assert without_paths(["bench", "rules"]) == ["bench", "rules"]
    words = ["study", "floor", "--out=here", "--data-root", "--out", "--scale", "paper", "--out"]
    assert without_paths(words) == ["study", "floor", "--scale", "paper"]


class TestCosts:
    """The packaged costs that `walkback ls methods` shows."""

    def test_the_packaged_costs_are_of_rules_and_well_formed(self):
        assert costs.packaged(), "run: walkback bench rules --package"
        for document in costs.packaged():
            result = BenchResult.from_json(document)
            assert_well_formed(result)
            assert result.bench == "rules"
            assert document["quick"] is False
            assert {"versions", "device", "command", "cores"} <= document.keys()
            assert not {"started", "load"} & document.keys()
            timed = {row.what.rpartition(", ")[0] for row in result.rows if row.ratio}
            # Rules that were added since are listed without a cost until the bench is run again.
            assert {"bp", "fa", "dfa"} <= timed
            assert timed <= set(RULES.names())
        assert len({costs.device_kind(document) for document in costs.packaged()}) == len(costs.packaged())

    def test_a_new_result_replaces_that_of_the_same_kind_of_device(self, monkeypatch, tmp_path):
        monkeypatch.setattr(costs, "FILE", tmp_path / "costs.json")
        assert costs.packaged() == []
        assert costs.bp_steps("dfa") == {}

        def result(cost):
            rows = (
                BenchRow.of("bp, M=8", [0.1], [1.0]),
                BenchRow.of("dfa, M=8", [0.1], [cost]),
                BenchRow("fa", reason="no"),
            )
            return BenchResult("rules", "ms", "bp steps", 1, rows).to_json()

        for cost, device in ((0.9, "cuda: big"), (0.8, "cpu: old"), (0.7, "cpu: new")):
            about = {"command": "walkback bench rules --quick", "started": "now", "load": 3.0}
            costs.package({**result(cost), "device": device, **about})
        assert costs.bp_steps("dfa") == {"cpu: new": {"M=8": 0.7}, "cuda: big": {"M=8": 0.9}}
        assert costs.bp_steps("fa") == costs.bp_steps("theirs") == {}
        assert all("started" not in document for document in costs.packaged())
        assert {document["command"] for document in costs.packaged()} == {"walkback bench rules --quick"}

    def test_costs_are_listed(self, capsys):
        assert main(["ls", "methods", "--json"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        timed = [name for name in RULES.names() if costs.bp_steps(name)]
        listed = {row["name"]: row["cost_in_bp_steps"] for row in rows if "cost_in_bp_steps" in row}
        assert listed == {name: costs.bp_steps(name) for name in timed}
        assert main(["ls", "methods"]) == 0
        shown = {words[0]: words[1] for line in capsys.readouterr().out.splitlines()[1:] if (words := line.split())}
        for name in timed:
            assert shown[name] == f"{next(iter(costs.bp_steps(name).values()))['alone']:.2f}"
            assert main(["ls", "methods", name]) == 0
            assert capsys.readouterr().out.count("cost in bp steps: ") == 1

    def test_a_rule_that_was_not_timed_is_listed_without_a_measured_cost(self, capsys, monkeypatch, tmp_path):
        monkeypatch.setattr(costs, "FILE", tmp_path / "none.json")
        assert main(["ls", "methods", "bp"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        (bp,) = (entry for entry in RULES.entries() if entry.name == "bp")
        assert f"cost: {bp.facts['Cost']}" in shown
        assert "bp steps:" not in shown

    def test_listing_needs_no_torch(self):
        code = (
            "import sys; from walkback.cli.main import main; main(['ls', 'methods']); sys.exit('torch' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
