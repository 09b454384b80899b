"""Audits of a user's own training function: jobs, frozen baselines, checkpoints, functions by file and name."""

from __future__ import annotations

import copy
import json
import math
import random
from collections import Counter, OrderedDict
from functools import partial
from pathlib import Path

import numpy as np
import own_loop_project as project
import pytest
import torch
from torch import nn

import walkback as wb
from walkback.auditing.own_loop import freezing
from walkback.auditing.own_loop.function_reference import FunctionReference, source_hashes
from walkback.auditing.own_loop.job import Job
from walkback.auditing.own_loop.jobs import LoopJob, loop_jobs
from walkback.auditing.own_loop.measure_plan import MeasurePlan
from walkback.auditing.own_loop.random_states import random_states, seed_all, set_random_states
from walkback.auditing.own_loop.state_arrays import state_from_arrays, state_to_arrays
from walkback.auditing.own_loop.train_job import JobOptions, train_job
from walkback.core.errors import InputError, WalkbackError
from walkback.runs import store
from walkback.runs.deadline import Deadline
from walkback.sweeping.worker import run_job

CPU = torch.device("cpu")


def run_one(train, folder, *, frozen=True, deadline=None, method="mine", checkpoint_seconds=0.0):
    options = JobOptions(Path(folder), CPU, checkpoint_seconds)
    spec = LoopJob(method, 0, frozen)
    done = train_job(train, spec, options, deadline or Deadline(None))
    return done, Path(folder) / spec.name


def small():
    return nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 2))


def steps(model, optimiser, count=3):
    for _ in range(count):
        optimiser.zero_grad()
        model(torch.randn(8, 3)).square().mean().backward()
        optimiser.step()


class TestJobs:
    def test_each_method_has_its_baseline_backprop_and_backprops_baseline(self):
        assert [job.name for job in loop_jobs(["mine"], [3], oracle=False)] == [
            "mine-s3",
            "mine-frozen-s3",
            "bp-s3",
            "bp-frozen-s3",
        ]

    def test_backprop_is_added_once_and_has_no_oracle(self):
        names = [job.name for job in loop_jobs(["mine", "bp"], [0, 1], oracle=True)]
        assert len(names) == len(set(names)) == 2 * (4 + 2)
        assert "mine-exact-frozen-s1" in names
        assert not [name for name in names if name.startswith("bp-exact")]

    @pytest.mark.parametrize(
        ("methods", "seeds", "got"),
        [
            (["a/b"], [0], "a/b"),
            (["mine:shell=method"], [0], "mine:shell"),
            ([], [0], "methods"),
            (["mine"], [], "seeds"),
            (["mine"], [1, 1], "1"),
            (["mine"], [-1], "-1"),
            (["mine"], [True], "True"),
            (["mine", "mine-exact"], [0], "mine-exact"),
        ],
    )
    def test_names_that_cannot_be_folders_are_refused(self, methods, seeds, got):
        with pytest.raises(InputError, match=got):
            loop_jobs(methods, seeds, oracle=True)


class TestFreezing:
    @pytest.mark.parametrize(
        "make",
        [
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
            lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5),
        ],
    )
    def test_frozen_parameters_keep_their_bits_and_the_rest_is_trained(self, make, tmp_path):
        kept = {}

        def train(job):
            model = small()
            kept["first"] = {name: value.clone() for name, value in model.state_dict().items()}
            job.freeze(model[1])
            steps(model, make(model.parameters()))
            kept["last"] = model.state_dict()
            return wb.Trained(model, accuracy=0.5)

        assert run_one(train, tmp_path)[0]
        same = {name: torch.equal(kept["first"][name], kept["last"][name]) for name in kept["first"]}
        assert all(same[name] for name in ("1.0.weight", "1.0.bias", "1.1.weight", "1.1.bias"))
        assert not any(same[name] for name in ("0.weight", "2.weight", "1.1.running_mean"))

    @pytest.mark.parametrize(
        "make",
        [
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1),
        ],
    )
    def test_an_optimiser_from_before_the_freeze_leaves_no_trace_either(self, make, tmp_path):
        def train(job):
            model = small()
            optimiser = make(model.parameters())
            job.freeze(model[1])
            kept = {name: each.clone() for name, each in model.named_parameters()}
            steps(model, optimiser)
            same = {name: torch.equal(each, kept[name]) for name, each in model.named_parameters()}
            assert all(is_same == name.startswith("1.") for name, is_same in same.items())
            return wb.Trained(model, accuracy=0.5)

        assert run_one(train, tmp_path)[0]

    @pytest.mark.parametrize("decay", [0.9, 0.999])
    def test_averages_of_weights_have_the_frozen_bits_or_are_refused(self, decay, tmp_path):
        def train(job, average):
            model = small()
            averaged = copy.deepcopy(model)
            job.freeze(model[1])
            optimiser = torch.optim.AdamW(model.parameters(), lr=0.1)
            for _ in range(5):
                steps(model, optimiser, 1)
                with torch.no_grad():
                    for mean, each in zip(averaged.parameters(), model.parameters(), strict=True):
                        average(mean, each, job.is_frozen(each))
            returned["same"] = all(map(torch.equal, averaged[1].parameters(), model[1].parameters()))
            return wb.Trained(averaged, accuracy=0.5)

        returned = {}
        lerped = partial(train, average=lambda mean, each, _: mean.lerp_(each, 1 - decay))
        assert run_one(lerped, tmp_path / "a")[0]
        assert returned["same"]
        summed = partial(train, average=lambda mean, each, _: mean.mul_(decay).add_(each, alpha=1 - decay))
        with pytest.raises(InputError, match="averaged weights"):
            run_one(summed, tmp_path / "b")
        assert not returned["same"]

        def skipping(mean, each, is_frozen):
            if not is_frozen:
                mean.mul_(decay).add_(each, alpha=1 - decay)

        assert run_one(partial(train, average=skipping), tmp_path / "c")[0]

    def test_a_job_that_is_no_baseline_trains_everything(self, tmp_path):
        def train(job):
            model = small()
            first = model[1][0].weight.detach().clone()
            job.freeze(model[1])
            assert not job.is_frozen(model[1][0].weight)
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
            assert not torch.equal(first, model[1][0].weight)
            return wb.Trained(model, accuracy=0.5)

        assert run_one(train, tmp_path, frozen=False)[0]

    def test_a_manual_update_is_refused_at_the_next_step(self, tmp_path):
        reached = []

        def train(job):
            model = small()
            job.freeze(model[1])
            optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                reached.append(step)
                steps(model, optimiser, 1)
                model[1][0].weight.data -= 0.01
            return wb.Trained(model, accuracy=0.5)

        with pytest.raises(InputError, match=r"0\.weight.*before an optimiser's step.*is_frozen"):
            run_one(train, tmp_path)
        assert reached == [0, 1]

    @pytest.mark.parametrize("with_epochs", [True, False])
    def test_an_update_without_an_optimiser_is_refused_by_the_bit_check(self, with_epochs, tmp_path):
        def train(job):
            model = small()
            job.freeze(model[1])
            for _ in job.epochs(2, model) if with_epochs else range(2):
                model(torch.randn(8, 3)).square().mean().backward()
                with torch.no_grad():
                    for parameter in model.parameters():
                        parameter -= 0.1 * parameter.grad
            return wb.Trained(model, accuracy=0.5)

        with pytest.raises(InputError, match=r"epoch 1.*torch\.optim" if with_epochs else r"end.*torch\.optim"):
            run_one(train, tmp_path)

    def test_an_own_update_that_skips_frozen_parameters_passes(self, tmp_path):
        def train(job):
            model = small()
            job.freeze(model[1])
            model(torch.randn(8, 3)).square().mean().backward()
            for parameter in model.parameters():
                if not job.is_frozen(parameter):
                    parameter.data -= 0.1 * parameter.grad
            return wb.Trained(model, accuracy=0.5)

        assert run_one(train, tmp_path)[0]

    def test_lbfgs_is_refused_because_it_evaluates_moved_parameters(self, tmp_path):
        def train(job):
            model = small()
            job.freeze(model[1])
            optimiser, x = torch.optim.LBFGS(model.parameters(), lr=0.1), torch.randn(8, 3)

            def closure():
                optimiser.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            optimiser.step(closure)
            return wb.Trained(model, accuracy=0.5)

        with pytest.raises(InputError, match="LBFGS"):
            run_one(train, tmp_path)

    def test_nan_is_the_same_bits(self):
        frozen, module = freezing.FrozenParameters(), nn.Linear(2, 2)
        module.weight.data.fill_(math.nan)
        frozen.add(module)
        frozen.check("now")
        module.weight.data[0, 0] = -0.0
        with pytest.raises(InputError, match="weight"):
            frozen.check("now")

    def test_zero_and_minus_zero_are_different_bits(self):
        frozen, module = freezing.FrozenParameters(), nn.Linear(2, 2)
        module.bias.data.zero_()
        frozen.add(module)
        module.bias.data.neg_()
        with pytest.raises(InputError, match="bias"):
            frozen.check("now")

    def test_a_baseline_without_freeze_or_with_another_model_is_refused(self, tmp_path):
        with pytest.raises(InputError, match=r"job\.freeze"):
            run_one(lambda job: wb.Trained(small(), accuracy=0.5), tmp_path / "a")

        def other(job):
            job.freeze(small()[1])
            return wb.Trained(small(), accuracy=0.5)

        with pytest.raises(InputError, match="not in the model"):
            run_one(other, tmp_path / "b")

    def test_feedback_that_moves_is_left_out_by_its_name(self, tmp_path):
        class Signs(nn.Linear):
            def __init__(self):
                super().__init__(4, 4)
                self.weight_backward = nn.Parameter(torch.ones(4, 4), requires_grad=False)

            def forward(self, x):
                self.weight_backward = nn.Parameter(self.weight.sign() * torch.rand(4, 4), requires_grad=False)
                return super().forward(x)

        def train(job, leave_out):
            model = nn.Sequential(nn.Linear(3, 4), Signs(), nn.Linear(4, 2))
            job.freeze(model[1], leave_out=leave_out)
            kept = model[1].weight.clone()
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
            assert torch.equal(kept, model[1].weight)
            return wb.Trained(model, accuracy=0.5)

        for leave_out, got in (
            ((), r"leave_out=\['weight_backward'\]"),
            ("weight", "requires_grad"),
            (["nothing"], "'nothing'"),
        ):
            with pytest.raises(InputError, match=got):
                run_one(partial(train, leave_out=leave_out), tmp_path / "a")
        _, path = run_one(partial(train, leave_out="weight_backward"), tmp_path / "b")
        assert store.open_run(path).record["own_loop"]["frozen"] == ["Signs.weight", "Signs.bias"]

    @pytest.mark.parametrize("given", [(), ([],), (nn.ModuleList(),)])
    def test_freezing_nothing_is_refused(self, given, tmp_path):
        with pytest.raises(InputError, match="no module with parameters"):
            run_one(lambda job: job.freeze(*given), tmp_path)

    def test_freezing_after_the_first_step_is_refused(self, tmp_path):
        def train(job):
            model = small()
            steps(model, torch.optim.SGD(model.parameters(), lr=0.1))
            job.freeze(model[1])

        with pytest.raises(InputError, match="after the first step"):
            run_one(train, tmp_path)

    def test_hooks_are_gone_after_the_job(self, tmp_path):
        def fail(job):
            job.freeze(nn.Linear(2, 2))
            raise RuntimeError("boom")

        with pytest.raises(WalkbackError, match=r"boom.*test_own_loop\.py"):
            run_one(fail, tmp_path)
        module = nn.Linear(2, 2)
        before = module.weight.detach().clone()
        module(torch.ones(1, 2)).sum().backward()
        torch.optim.SGD(module.parameters(), lr=1.0).step()
        assert not torch.equal(before, module.weight)
        assert "boom" in (tmp_path / "mine-frozen-s0" / "error.txt").read_text()

    @pytest.mark.parametrize("given", [nn.ReLU(), "blocks", nn.Parameter(torch.zeros(1))])
    def test_what_cannot_be_frozen_is_refused(self, given):
        with pytest.raises(InputError, match=r"job\.freeze"):
            freezing.modules_of([given])


class TestStates:
    STATES = (
        {"a": torch.arange(6.0).view(2, 3), "b": [1, 2.5, None, True, "x"], "c": (1, (2, 3))},
        OrderedDict(x=torch.ones(2, dtype=torch.bfloat16), y=torch.tensor(3), z=torch.tensor([True, False])),
        {0: {"exp_avg": torch.ones(2)}, 1: {}},
        {"milestones": Counter({30: 1, 60: 2}), "kind": "tensor", "name": "x"},
        {"inf": float("inf"), "n": np.float32(1.5), "array": np.arange(3), "big": 2**100},
        {"e": torch.zeros(0, 3), "f": torch.ones(3, 2).T, "g": torch.ones(2).to(torch.float8_e4m3fn)},
    )

    @pytest.mark.parametrize("state", STATES)
    def test_a_state_comes_back_as_it_was(self, state):
        skeleton, arrays = state_to_arrays(state, "it")
        again = state_from_arrays(json.loads(json.dumps(skeleton, allow_nan=False)), arrays)
        assert _plain(again) == _plain(state)

    @pytest.mark.parametrize(
        ("state", "key"),
        [
            ({"a": {"f": print}}, "a.f"),
            ({"a": [1, {2}]}, "a.1"),
            ({"c": torch.ones(2, dtype=torch.complex64)}, "c"),
            ({"s": torch.eye(2).to_sparse()}, "s"),
            ({"o": np.array([object()])}, "o"),
            ({"x.y": torch.ones(1), "x": {"y": torch.ones(1)}}, "x.y"),
        ],
    )
    def test_what_does_not_fit_is_refused_by_key(self, state, key):
        with pytest.raises(InputError, match=f"'{key}'"):
            state_to_arrays(state, "the state")

    def test_random_streams_go_on(self):
        seed_all(7)
        states = random_states()
        skeleton, arrays = state_to_arrays(states, "it")
        drawn = torch.rand(2).tolist(), np.random.rand(), random.random(), np.random.randn()
        set_random_states(state_from_arrays(json.loads(json.dumps(skeleton)), arrays))
        assert (torch.rand(2).tolist(), np.random.rand(), random.random(), np.random.randn()) == drawn


def _plain(value):
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.float().tolist()
    if isinstance(value, np.ndarray | np.generic):
        return type(value).__name__, str(value.dtype), value.tolist()
    if isinstance(value, dict):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return kind, {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value).__name__, [_plain(item) for item in value]
    return value


class Stop(Exception):  # noqa: N818
    """Ends a training between two epochs, as a kill does."""


def noisy_train(stops=(), count=4):
    """A training whose every step depends on optimiser, scheduler, generators and the global streams."""
    left = list(stops)

    def train(job: Job) -> wb.Trained:
        model = small()
        if job.frozen:
            job.freeze(model[1])
        optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [2, 3])
        own, numpy_own = torch.Generator().manual_seed(job.seed), np.random.default_rng(job.seed)
        python_own = random.Random(job.seed)
        for epoch in job.epochs(count, model, optimiser, schedule, own, numpy_own, python_own):
            if left and left[0] == epoch:
                left.pop(0)
                raise Stop
            scale = np.random.rand() + numpy_own.random() + python_own.random() + random.random()
            for _ in range(2):
                optimiser.zero_grad()
                x = torch.randn(8, 3) + torch.randn(8, 3, generator=own)
                (model(x).square().mean() * scale).backward()
                optimiser.step()
            schedule.step()
        return wb.Trained(model, accuracy=0.5)

    return train


class TestEpochs:
    @pytest.mark.parametrize("frozen", [False, True])
    def test_an_interrupted_training_ends_with_the_same_bits(self, frozen, tmp_path):
        _, whole = run_one(noisy_train(), tmp_path / "whole", frozen=frozen)
        train = noisy_train(stops=[1, 3])
        for _ in range(2):
            with pytest.raises(WalkbackError, match="Stop"):
                run_one(train, tmp_path / "parts", frozen=frozen)
        done, parts = run_one(train, tmp_path / "parts", frozen=frozen)
        assert done
        assert (whole / store.MODEL).read_bytes() == (parts / store.MODEL).read_bytes()
        assert [row["epoch"] for row in store.open_run(parts).log()] == [1, 2, 3, 4]
        assert not (parts / store.RESUME).exists()

    def test_a_deadline_stops_after_an_epoch_and_is_gone_on_from(self, tmp_path):
        _, whole = run_one(noisy_train(), tmp_path / "whole")
        done, parts = run_one(noisy_train(), tmp_path / "parts", deadline=Deadline(0), checkpoint_seconds=1e9)
        assert not done
        assert store.open_run(parts).checkpoint_epochs() == {0: store.RESUME}
        assert run_one(noisy_train(), tmp_path / "parts")[0]
        assert (whole / store.MODEL).read_bytes() == (parts / store.MODEL).read_bytes()

    def test_a_changed_checkpoint_is_refused(self, tmp_path):
        train = noisy_train(stops=[2])
        with pytest.raises(WalkbackError, match="Stop"):
            run_one(train, tmp_path)
        path = tmp_path / "mine-frozen-s0" / store.RESUME
        data = bytearray(path.read_bytes())
        data[-100] ^= 1
        path.write_bytes(bytes(data))
        with pytest.raises(InputError, match="sha256"):
            run_one(train, tmp_path)

    def test_a_source_that_changed_between_two_epochs_is_recorded(self, tmp_path):
        source = tmp_path / "own.py"
        options = JobOptions(tmp_path / "out", CPU, 0.0, sources=(FunctionReference(str(source), "train"),))
        train, spec = noisy_train(stops=[1, 3]), LoopJob("mine", 0)
        for text in ("one", "two"):
            source.write_text(f"# {text}")
            with pytest.raises(InputError, match="Stop"):
                train_job(train, spec, options)
        assert train_job(train, spec, options)
        record = store.open_run(tmp_path / "out" / spec.name).record["own_loop"]
        assert record["changed"] == [{"epoch": 1, "files": ["own.py"]}]
        assert record["sources"] == source_hashes(options.sources)

    def test_other_objects_than_those_stored_are_refused(self, tmp_path):
        with pytest.raises(WalkbackError, match="Stop"):
            run_one(noisy_train(stops=[2]), tmp_path, frozen=False)

        def train(job):
            model = small()
            for _ in job.epochs(4, model):
                pass

        with pytest.raises(InputError, match=r"Adam.*job.epochs now got Sequential"):
            run_one(train, tmp_path, frozen=False)

    @pytest.mark.parametrize("given", [([1, 2],), (nn.Linear(1, 1), iter([]))])
    def test_what_has_no_state_is_refused_before_the_first_epoch(self, given, tmp_path):
        with pytest.raises(InputError, match=type(given[-1]).__name__):
            run_one(lambda job: list(job.epochs(1, *given)), tmp_path)

    def test_a_returned_model_that_could_not_be_resumed_is_named(self, tmp_path):
        def train(job):
            model = small()
            for _ in job.epochs(2, torch.optim.SGD(model.parameters(), lr=0.1)):
                pass
            return wb.Trained(model, accuracy=0.5)

        with pytest.warns(UserWarning, match="Give it to job"):
            run_one(train, tmp_path, frozen=False)

    def test_a_training_without_epochs_starts_again(self, tmp_path):
        calls = []

        def train(job):
            calls.append(torch.rand(1).item())
            if len(calls) == 1:
                raise Stop
            return wb.Trained(small(), accuracy=0.5)

        with pytest.raises(WalkbackError, match="Stop"):
            run_one(train, tmp_path, frozen=False)
        assert run_one(train, tmp_path, frozen=False)[0]
        assert run_one(train, tmp_path, frozen=False)[0]
        assert len(calls) == 2
        assert calls[0] == calls[1], "the streams are seeded for every job"


class TestReturned:
    @pytest.mark.parametrize(
        ("made", "got"),
        [
            (lambda: None, "NoneType"),
            (lambda: wb.Trained(small()), "no result"),
            (lambda: wb.Trained("model", accuracy=0.5), "str"),
            (lambda: wb.Trained(small(), accuracy=50), "50"),
            (lambda: wb.Trained(small(), correct=[0.2, 1]), "correct"),
            (lambda: wb.Trained(small(), correct=[0, 1], accuracy=0.7), "0.7"),
            (lambda: wb.Trained(small(), accuracy=0.5, feedback={"B": object()}), "'B'"),
        ],
    )
    def test_bad_results_are_refused_and_nothing_counts_as_done(self, made, got, tmp_path):
        with pytest.raises(InputError, match=got):
            run_one(lambda job: made(), tmp_path, frozen=False)
        assert not store.open_run(tmp_path / "mine-s0").is_done

    def test_a_wrapped_model_is_stored_as_the_plain_one(self, tmp_path):
        model = small()
        _, path = run_one(lambda job: wb.Trained(nn.DataParallel(model), accuracy=0.5), tmp_path, frozen=False)
        assert store.open_run(path).params().keys() == model.state_dict().keys()

    def test_a_loss_alone_is_stored(self, tmp_path):
        _, path = run_one(lambda job: wb.Trained(small(), loss=1.5), tmp_path, frozen=False)
        assert store.open_run(path).record["result"] == {"epochs": 0, "test_loss": 1.5}


class TestFunctions:
    def test_a_function_and_a_class_are_imported_by_file_and_name(self):
        for function in (project.train, project.Net, project.Net.forward):
            reference = FunctionReference.of(function)
            assert reference.problem == ""
            assert FunctionReference.from_json(json.loads(json.dumps(reference.to_json()))).load() is function

    def test_a_function_in_a_package_is_imported_with_relative_imports(self, tmp_path, monkeypatch):
        package = tmp_path / "pkg_of_mine" / "inner"
        package.mkdir(parents=True)
        for folder in (package, package.parent):
            (folder / "__init__.py").write_text("")
        (package / "train.py").write_text("from ..nets import SIZE\n\n\ndef train(job):\n    return SIZE\n")
        (package.parent / "nets.py").write_text("SIZE = 3\n")
        monkeypatch.setattr("sys.path", [*__import__("sys").path])
        reference = FunctionReference(str(package / "train.py"), "train")
        assert reference.load()(None) == 3
        assert set(source_hashes([reference])) == {"train.py", "__init__.py"}

    def test_sources_are_all_imported_modules_below_the_folder(self, tmp_path, monkeypatch):
        (tmp_path / "helper_of_train.py").write_text("A = 1\n")
        (tmp_path / "unused.py").write_text("B = 1\n")
        (tmp_path / "my_training.py").write_text("import helper_of_train\n\n\ndef train(job):\n    pass\n")
        monkeypatch.setattr("sys.path", [*__import__("sys").path])
        reference = FunctionReference(str(tmp_path / "my_training.py"), "train")
        reference.load()
        assert set(source_hashes([reference])) == {"helper_of_train.py", "my_training.py"}

    def test_an_audit_at_the_top_level_of_the_file_is_refused_when_a_worker_imports_it(self, tmp_path, monkeypatch):
        code = (
            "import walkback as wb\ndef train(job): pass\nwb.audit(train, methods=['a'], build=int, eval_batches=[])\n"
        )
        (tmp_path / "unguarded.py").write_text(code)
        monkeypatch.setattr("sys.path", [*__import__("sys").path])
        with pytest.raises(InputError, match="__main__"):
            FunctionReference(str(tmp_path / "unguarded.py"), "train").load()

    def test_a_partial_function_has_the_file_of_its_function_and_does_not_travel(self):
        reference = FunctionReference.of(partial(project.my_credit, feedback=[]))
        assert reference.file == FunctionReference.of(project.train).file
        assert reference.problem

    def test_a_job_is_json_and_runs_where_only_the_file_is_known(self, tmp_path):
        """What an executor's worker does."""
        references = [FunctionReference.of(project.train), FunctionReference.of(project.Net)]
        job = {
            "kind": "own_loop",
            "job": LoopJob("mine", 3, True).to_json(),
            "sources": [reference.to_json() for reference in references],
            "out": str(tmp_path),
            "device": "cpu",
            "checkpoint_seconds": 30.0,
            "command": [],
            "described": {},
            "needs_feedback": ["mine"],
            "until": None,
        }
        assert run_job(json.loads(json.dumps(job)))["status"] == "done"
        assert run_job(job | {"job": LoopJob("mine", 4).to_json(), "until": 0.0})["status"] == "stopped"
        record = store.open_run(tmp_path / "mine-frozen-s3").record
        assert record["own_loop"]["functions"] == ["own_loop_project.py:train", "own_loop_project.py:Net"]
        assert len(record["own_loop"]["frozen"]) == 6

    def test_a_closure_has_a_reason(self):
        assert "inside of a function" in FunctionReference.of(lambda: None).problem
        with pytest.raises(InputError, match="top level"):
            FunctionReference.of(noisy_train()).load()


GIVEN = {"methods": ["mine"], "seeds": [0], "build": project.Net, "eval_batches": project.test_batches}


class TestBadAudits:
    @pytest.mark.parametrize(
        ("changes", "got"),
        [
            ({"build": None}, "build="),
            ({"eval_batches": None}, "eval_batches="),
            ({"methods": None}, "methods="),
            ({"build": dict}, "dict"),
            ({"credit": 3}, "credit is a int"),
            ({"credit": {"other": project.my_credit}}, "'other'"),
            ({"epochs": 3}, "epochs="),
            ({"arch": "vit_mini"}, "arch="),
            ({"oracle": "all"}, "all"),
            ({"executor": "cluster"}, "cluster"),
            ({"jobs": 2}, "executor="),
            ({"describe": {"data": 3}}, "data"),
            ({"blocks": "nowhere"}, "nowhere"),
        ],
    )
    def test_bad_input_is_refused_before_anything_is_trained(self, changes, got, tmp_path):
        def never(job):
            raise AssertionError("trained")

        train = project.never if "executor" in changes else never
        with pytest.raises(InputError, match=got):
            wb.audit(train, **{**GIVEN, **changes}, out=tmp_path / "a")
        assert not [path for path in (tmp_path / "a").glob("*") if path.is_dir()]

    def test_repeated_samples_are_refused_unless_they_are_announced(self, tmp_path):
        twice = [*project.test_batches(), *project.test_batches()]
        with pytest.raises(InputError, match="distinct=False"):
            wb.audit(project.never, **{**GIVEN, "eval_batches": twice}, out=tmp_path / "a")
        plan = MeasurePlan.of(project.Net, twice, None, {"distinct": False}, ["mine"])
        plan.save(tmp_path, {"train": project.never}, {})
        assert plan.groups.repeats == MeasurePlan.load(tmp_path).groups.repeats == 256
        with pytest.raises(InputError, match="distinct="):
            wb.audit("dfa", distinct=False)

    def test_arguments_of_a_training_function_without_one_are_refused(self):
        with pytest.raises(InputError, match="build="):
            wb.audit("dfa", build=project.Net)

    def test_closures_do_not_travel(self, tmp_path):
        with pytest.raises(InputError, match="top level"):
            wb.audit(noisy_train(), **GIVEN, out=tmp_path, executor="local")
