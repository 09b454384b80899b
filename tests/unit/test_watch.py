"""Watch: training is not disturbed, the journal is correct and survives a kill, detectors stop and write the card."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import foreign_models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import tiny
import walkback as wb
from walkback.cli.commands.watch import BARS, WATCH_WIDTH, sparkline
from walkback.cli.main import main
from walkback.judge.card import read_card
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.watching import huggingface, lightning
from walkback.watching.callback import CallbackBase
from walkback.watching.detectors import DETECTOR_NAMES, PAPERS_D2, parse_alarms, raised_in
from walkback.watching.follow import state_of
from walkback.watching.journal import WATCH_LOG, WATCH_RECORD
from walkback.watching.tensorboard import TensorBoard


def batches(groups=8, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return [(torch.randn(128, 6, generator=draws), torch.randint(4, (128,), generator=draws)) for _ in range(groups)]


def net(seed=0):
    torch.manual_seed(seed)
    return foreign_models.Reference()


def rows_of(folder):
    return [json.loads(line) for line in (folder / WATCH_LOG).read_text().splitlines()]


def train(model, steps, after, lr=1e-2):
    """A plain loop; `after` is called after each step."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr)
    data = batches(seed=1)
    for step in range(steps):
        x, y = data[step % len(data)]
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
        if after():
            break
    return optimiser


class Noisy(nn.Module):
    """Has state that a measurement could change: dropout, batch statistics, the iteration of a spectral norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm1d(12), nn.Linear(12, 12), nn.GELU(), nn.Dropout(0.3)) for _ in range(3)
        )
        self.head = nn.utils.parametrizations.spectral_norm(nn.Linear(12, 4))

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


class TestTrainingIsNotDisturbed:
    @staticmethod
    def trained(out, autocast=False):
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        model = Noisy()
        loader = DataLoader(TensorDataset(*map(torch.cat, zip(*batches(), strict=True))), 100, shuffle=True)
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0, enabled=autocast)
        with torch.autocast("cpu", dtype=torch.float16, enabled=autocast):
            watch = wb.Watch(model, loader, every=3, out=out) if out else None
            for _ in range(2):
                for x, y in loader:
                    optimiser.zero_grad()
                    scaler.scale(F.cross_entropy(model(x), y)).backward()
                    scaler.step(optimiser)
                    scaler.update()
                    if watch:
                        watch.step()
            if watch:
                watch.finish()
        grads = {name: p.grad for name, p in model.named_parameters()}
        streams = torch.get_rng_state(), random.random(), np.random.rand()
        return model, optimiser, grads, streams, watch

    @pytest.mark.parametrize("autocast", [False, True])
    def test_a_watched_training_is_equal_bit_for_bit(self, tmp_path, autocast):
        model, optimiser, grads, streams, watch = self.trained(tmp_path / "w", autocast)
        bare, other, bare_grads, bare_streams, _ = self.trained(None, autocast)
        assert watch.steps == 22
        assert [row["step"] for row in rows_of(tmp_path / "w")] == [0, 3, 6, 9, 12, 15, 18, 21]
        for name, value in bare.state_dict().items():
            assert torch.equal(model.state_dict()[name], value), name
        for name, value in bare_grads.items():
            assert torch.equal(grads[name], value), name
        for left, right in zip(optimiser.state.values(), other.state.values(), strict=True):
            assert all(torch.equal(left[name], right[name]) for name in right)
        assert torch.equal(streams[0], bare_streams[0])
        assert streams[1:] == bare_streams[1:]
        assert model.training
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

    def test_no_tensors_are_kept_between_measurements(self, tmp_path):
        watch = wb.Watch(net(), batches(), every=None, out=tmp_path / "w")

        def tensors():
            gc.collect()
            return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

        watch.measure()
        before = tensors()
        for _ in range(3):
            watch.measure()
        assert tensors() == before


class TestNumbers:
    def test_a_row_has_the_values_of_diagnose(self, tmp_path):
        model = net()
        feedback = torch.randn(4, 12, generator=torch.Generator().manual_seed(2))

        def credit(frozen):
            return [frozen.error @ feedback.to(frozen.error.dtype) for _ in frozen.states]

        watch = wb.Watch(model, batches(), every=4, out=tmp_path / "w", credit=credit)
        train(model, 4, watch.step)
        row = rows_of(tmp_path / "w")[-1]
        report = wb.diagnose(model, batches(), credit=credit)
        q = report.quantities
        assert row["step"] == 4
        assert row["growth"] == report.flags["D1"].value
        assert row["grad_top"] == report.flags["D2"].value
        assert row["hidden"] == [layer.hidden_norm.value for layer in q.layers]
        assert row["grad"] == [layer.grad_norm_128.value for layer in q.layers]
        # The report compares with the float64 replay, a row with the gradient of the model itself.
        assert row["direction"] == pytest.approx(report.flags["direction"].value, abs=1e-6)
        assert row["cosine"] == pytest.approx([layer.credit.cos.value for layer in q.layers], abs=1e-6)
        assert row["flags"]["D1"] == report.flags["D1"].status
        x, y = (torch.cat(part) for part in zip(*batches(), strict=True))
        model.eval()
        assert row["eval_acc"] == (model(x).argmax(1) == y).double().mean().item()
        assert row["eval_loss"] == pytest.approx(F.cross_entropy(model(x), y).item(), rel=1e-6)

    def test_wrapped_and_patched_models_are_measured_with_their_original_forward(self, tmp_path):
        plain = wb.Watch(net(), batches(), out=tmp_path / "plain").measure()
        model = net()
        # Accelerate does this for mixed precision: the forward of the instance runs under autocast.
        model._original_forward = model.forward
        patched = torch.autocast("cpu", dtype=torch.float16)(model.forward)
        model.forward = patched
        watch = wb.Watch(nn.DataParallel(model), batches(), out=tmp_path / "wrapped")
        wrapped = watch.measure()
        assert wrapped["hidden"] == plain["hidden"]
        assert wrapped["grad"] == plain["grad"]
        assert watch.finish().measurements.facts["dtype"] == "float32"
        assert model.forward is patched

    def test_the_blocks_are_found_again_after_a_cast(self, tmp_path):
        model = net()
        watch = wb.Watch(model, batches(), out=tmp_path / "w")
        model.double()
        assert watch.measure()["growth"] == pytest.approx(rows_of(tmp_path / "w")[0]["growth"], rel=1e-5)
        assert watch.finish().measurements.facts["dtype"] == "float64"

    def test_a_diverged_model_gives_rows_without_values_and_continues(self, tmp_path):
        model = net()
        watch = wb.Watch(
            model, batches(), every=1, out=tmp_path / "w", stop_on=DETECTOR_NAMES, loggers=[TensorBoard(Fake())]
        )
        with torch.no_grad():
            model.blocks[1].net[1].weight[0, 0] = torch.nan
        assert not watch.step()
        row = rows_of(tmp_path / "w")[-1]
        assert (row["growth"], row["grad_top"], row["direction"]) == (None, None, None)
        assert row["hidden"][0] is not None
        assert row["hidden"][-1] is None
        assert "raised" not in row["flags"].values()
        with pytest.warns(UserWarning, match=r"no card: .*blocks\.1\.net\.1\.weight.*NaN"):
            assert watch.finish() is None
        assert json.loads((tmp_path / "w" / WATCH_RECORD).read_text())["status"] == "failed"

    def test_a_model_that_cannot_be_measured_gives_a_row_with_the_problem(self, tmp_path):
        model = net()
        watch = wb.Watch(model, batches(), every=1, out=tmp_path / "w")
        model.blocks[0].forward = lambda h: F.dropout(h, 0.5, training=True)
        watch.step()
        row = rows_of(tmp_path / "w")[-1]
        assert "random in evaluation mode" in row["problem"]
        assert row["flags"] == {}
        assert main(["watch", str(tmp_path / "w"), "--once"]) == 2


class TestDetectors:
    def test_growth_and_collapse_stop_the_training_and_write_the_card(self, tmp_path):
        model = net()
        watch = wb.Watch(
            model, batches(), every=2, out=tmp_path / "w", stop_on=[("D1", "D2")], method_name="mine", protocol="three"
        )
        stops = []

        def after():
            if watch.steps == 4:
                # Growth alone must not stop the training.
                foreign_models.explode(model.blocks, [1e4, 1, 1])
            if watch.steps == 6:
                foreign_models.explode(model.blocks, [1e5, 1, 1])
            stops.append(watch.step())
            return stops[-1]

        train(model, 20, after, lr=1e-9)
        assert watch.should_stop
        assert stops == [False] * 7 + [True]
        assert watch.first["D1"] == 6
        assert watch.first["D2"] == 8
        assert watch.report.verdict == "walked_back"
        card = read_card(tmp_path / "w" / "report.json")
        assert card["claim"]["method"] == "mine"
        assert "stopped at step 8 by D1 and D2" in watch.report.notes
        assert "D1 at step 6, D2 at step 8" in watch.report.notes
        assert (tmp_path / "w" / "report.html").is_file()
        record = json.loads((tmp_path / "w" / WATCH_RECORD).read_text())
        assert (record["status"], record["verdict"]) == ("stopped", "walked_back")
        # After the end nothing is measured or written.
        before = (tmp_path / "w" / WATCH_LOG).read_bytes()
        assert watch.step()
        assert watch.measure() is None
        assert watch.finish() is watch.report
        assert (tmp_path / "w" / WATCH_LOG).read_bytes() == before

    def test_d2_with_the_floor_of_the_papers_fails_first(self, tmp_path):
        model = net()
        watch = wb.Watch(model, batches(), every=None, out=tmp_path / "w")
        for step, scale in enumerate([5e-5, 0.1], start=1):
            with torch.no_grad():
                model.out_head.weight.mul_(scale)
            watch.step()
            watch.measure()
            row = rows_of(tmp_path / "w")[-1]
            assert (1e-7 < row["grad_top"] < 8e-7) == (step == 1)
        assert watch.first[PAPERS_D2] == 1
        assert watch.first["D2"] == 2

    def test_thresholds_can_be_set(self, tmp_path):
        limits = DiagnosticThresholds(h_norm_explosion_ratio=1.0, g_norm_floor=1.0)
        watch = wb.Watch(net(), batches(), every=1, out=tmp_path / "w", thresholds=limits, stop_on="D2")
        assert watch.first["D1"] == watch.first["D2"] == 0
        assert not watch.should_stop, "the first measurement, before training, stops nothing"
        assert watch.step()

    def test_rows_without_flags_are_judged_by_their_values(self, tmp_path):
        model = net()
        watch = wb.Watch(model, batches(), every=None, out=tmp_path / "w")
        for factors in ([1e4, 1, 1], [1e5, 1, 1]):
            foreign_models.explode(model.blocks, factors)
            watch.measure()
        for row in rows_of(tmp_path / "w"):
            bare = {name: value for name, value in row.items() if name != "flags"}
            assert raised_in(bare, DiagnosticThresholds()) == raised_in(row, DiagnosticThresholds())

    def test_stop_on_is_parsed(self):
        assert parse_alarms("D2") == (("D2",),)
        assert parse_alarms(("D1", "D2")) == (("D1",), ("D2",))
        assert parse_alarms([("D1", "D2"), "direction"]) == (("D1", "D2"), ("direction",))
        with pytest.raises(wb.InputError, match=r"'D3'.*Did you mean"):
            parse_alarms(["D3"])
        with pytest.raises(wb.InputError, match="empty group"):
            parse_alarms([()])


class TestInvalidInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"every": 0}, "every is 0; expected at least 1"),
            ({"every": 2.5}, "every"),
            ({"protocol": "five"}, "Unknown protocol 'five'"),
            ({"stop_on": ["D9"]}, "Unknown detector 'D9'"),
            ({"blocks": "nowhere"}, "the model has no such module"),
            ({"eval_batches": []}, "No evaluation batches"),
            ({"model": 3}, "model is a int"),
        ],
    )
    def test_invalid_settings_are_refused_and_leave_no_file(self, tmp_path, settings, message):
        given = {"model": net(), "eval_batches": batches(), "out": tmp_path / "w", **settings}
        with pytest.raises(wb.InputError, match=message):
            wb.Watch(given.pop("model"), given.pop("eval_batches"), **given)
        assert not (tmp_path / "w").exists()

    def test_steps_that_restart_in_an_epoch_are_refused(self, tmp_path):
        watch = wb.Watch(net(), batches(), out=tmp_path / "w")
        watch.step(7)
        with pytest.raises(wb.InputError, match=r"step=1 .*step 7.*whole training"):
            watch.step(1)

    def test_accuracies_in_percent_do_not_cost_the_card(self, tmp_path):
        watch = wb.Watch(net(), batches(), out=tmp_path / "w")
        with pytest.raises(wb.InputError, match="not a percentage"):
            watch.finish(headline_acc=30.6)
        assert watch.finish(headline_acc=0.306, frozen_baseline_acc=0.349).flags["D3"].status == "raised"

    def test_accuracies_given_after_the_end_judge_the_card_again(self, tmp_path):
        watch = wb.Watch(net(), batches(), out=tmp_path / "w")
        first = watch.finish()
        assert first.flags["D3"].status == "missing"
        report = watch.finish(headline_acc=0.306, frozen_baseline_acc=0.349)
        assert report.flags["D3"].status == "raised"
        assert report is watch.report
        assert report.measurements is first.measurements, "nothing is measured again"
        card = json.loads((tmp_path / "w" / "report.json").read_text())
        assert card["claim"]["headline_acc"] == [0.306]
        assert json.loads((tmp_path / "w" / WATCH_RECORD).read_text())["verdict"] == report.verdict

    @pytest.mark.parametrize("as_function", [False, True])
    def test_a_callback_takes_accuracies_at_the_end(self, tmp_path, as_function):
        given = {"headline_acc": 0.306, "frozen_baseline_acc": 0.349}
        callback = CallbackBase(batches(), out=tmp_path / "w", accuracies=(lambda: given) if as_function else given)
        callback.begin(net(), 0)
        callback.end()
        assert callback.watch.report.flags["D3"].status == "raised"

    def test_wrong_accuracies_of_a_callback_are_refused_and_cost_no_card(self, tmp_path):
        for wrong, named in (({"acc": 0.3}, "headline_acc"), (0.3, "expected a dict")):
            with pytest.raises(wb.InputError, match=named):
                CallbackBase(batches(), accuracies=wrong)
        callback = CallbackBase(batches(), out=tmp_path / "w", accuracies=lambda: {"headline_acc": 30.6})
        callback.begin(net(), 0)
        with pytest.raises(wb.InputError, match="not a percentage"):
            callback.end()
        assert (tmp_path / "w" / "report.json").is_file()

    def test_a_missing_library_is_named(self, monkeypatch):
        for module in ("lightning.pytorch.callbacks", "pytorch_lightning.callbacks", "transformers.trainer_callback"):
            monkeypatch.setitem(sys.modules, module, None)
        for adapter, extra in ((lightning, "lightning"), (huggingface, "huggingface")):
            with pytest.raises(wb.InputError, match=rf"pip install 'walkback\[{extra}\]'"):
                adapter._callback.__wrapped__()
            with pytest.raises(AttributeError):
                adapter.NoSuchThing  # noqa: B018


class TestJournal:
    def test_an_existing_folder_is_refused_or_resumed(self, tmp_path):
        out, model = tmp_path / "w", net()
        first = wb.Watch(model, batches(), every=2, out=out)
        train(model, 6, first.step)
        with pytest.raises(wb.InputError, match=r"watch\.json.*resume=True"):
            wb.Watch(model, batches(), every=2, out=out)
        with pytest.raises(wb.InputError, match="other evaluation samples"):
            wb.Watch(model, batches(seed=5), every=2, out=out, resume=True)
        again = wb.Watch(model, batches(), every=2, out=out, resume=True)
        assert again.steps == 6
        train(model, 2, again.step)
        assert [row["step"] for row in rows_of(out)] == [0, 2, 4, 6, 8]
        # Resuming from an earlier checkpoint drops the later rows.
        back = wb.Watch(model, batches(), every=2, out=out, resume=True, start=3)
        assert [row["step"] for row in rows_of(out)] == [0, 2, 3]
        train(model, 2, back.step)
        assert [row["step"] for row in rows_of(out)] == [0, 2, 3, 4]
        assert back.steps == 5

    def test_first_alarms_are_kept_on_resume(self, tmp_path):
        out, model = tmp_path / "w", net()
        watch = wb.Watch(model, batches(), every=1, out=out)
        watch.step()
        foreign_models.explode(model.blocks, [1e9, 1, 1])
        watch.step()
        assert wb.Watch(model, batches(), every=1, out=out, resume=True).first["D1"] == 2
        assert wb.Watch(model, batches(), every=1, out=out, resume=True, start=1).first["D1"] is None

    @pytest.mark.slow
    def test_kill_9_loses_no_row(self, tmp_path):
        code = (
            "import os, signal, sys; sys.path[:0] = sys.argv[2:]\n"
            "import test_watch as t, walkback as wb\n"
            "model = t.net()\n"
            "watch = wb.Watch(model, t.batches(), every=2, out=sys.argv[1])\n"
            "def after():\n"
            "    watch.step()\n"
            "    if watch.steps == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
            "t.train(model, 20, after)\n"
        )
        here = Path(__file__).parent
        out = tmp_path / "w"
        done = subprocess.run([sys.executable, "-c", code, str(out), str(here), str(here.parent)], check=False)
        assert done.returncode == -signal.SIGKILL
        assert [row["step"] for row in rows_of(out)] == [0, 2, 4, 6]
        state = state_of(out)
        assert state.status == "interrupted"
        assert "process" in state.message
        # A kill while a line is being written.
        with (out / WATCH_LOG).open("a") as file:
            file.write('{"step": 8, "gro')
        assert [row["step"] for row in state_of(out).rows] == [0, 2, 4, 6]
        model = net()
        watch = wb.Watch(model, batches(), every=2, out=out, resume=True)
        train(model, 2, watch.step)
        assert [row["step"] for row in rows_of(out)] == [0, 2, 4, 6, 8]

    def test_the_context_manager_writes_the_card_or_records_the_interruption(self, tmp_path):
        with wb.Watch(net(), batches(), out=tmp_path / "a") as watch:
            watch.step()
        assert watch.report is not None
        assert state_of(tmp_path / "a").status == "done"

        def broken():
            with wb.Watch(net(), batches(), out=tmp_path / "b") as watch:
                watch.step()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            broken()
        assert not (tmp_path / "b" / "report.json").exists()
        state = state_of(tmp_path / "b")
        assert (state.status, state.message) == ("interrupted", "ZeroDivisionError after step 1")

    def test_damaged_files_are_refused(self, tmp_path):
        wb.Watch(net(), batches(), out=tmp_path / "w")
        for name, text in ((WATCH_LOG, "[]\n"), (WATCH_LOG, "{\n"), (WATCH_RECORD, "{}"), (WATCH_RECORD, "nothing")):
            folder = tmp_path / "copy"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(tmp_path / "w", folder)
            (folder / name).write_text(text)
            with pytest.raises(wb.InputError, match=name):
                wb.Watch(net(), batches(), out=folder, resume=True)
            assert main(["watch", str(folder), "--once"]) == 3


class Fake:
    """A writer that keeps the scalars."""

    def __init__(self):
        self.scalars = {}

    def add_scalar(self, tag, scalar_value, global_step):
        assert np.isfinite(scalar_value)
        self.scalars[tag, global_step] = scalar_value


class TestTensorBoard:
    def test_rows_become_scalars(self, tmp_path):
        writer, logged = Fake(), []
        watch = wb.Watch(net(), batches(), every=1, out=tmp_path / "w", loggers=[TensorBoard(writer), logged.append])
        watch.step()
        assert logged == rows_of(tmp_path / "w")
        for row in logged:
            for name in ("growth", "grad_top", "direction", "eval_loss", "eval_acc"):
                assert writer.scalars[f"walkback/{name}", row["step"]] == row[name]
            for name in ("hidden", "grad"):
                for layer, value in enumerate(row[name]):
                    assert writer.scalars[f"walkback/{name}/{layer}", row["step"]] == value
            assert writer.scalars["walkback/raised/D2", row["step"]] == 0.0

    def test_without_tensorboard_a_folder_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        with pytest.raises(wb.InputError, match=r"walkback\[tensorboard\]"):
            TensorBoard(tmp_path)


class TestCommand:
    def test_once_shows_the_present_state(self, tmp_path, capsys):
        model = net()
        named = {"method_name": "dfa of mine", "protocol": "three"}
        watch = wb.Watch(model, batches(), every=1, out=tmp_path / "w", **named)
        foreign_models.explode(model.blocks, [1e9, 1, 1])
        train(model, 3, watch.step, lr=1e-9)
        assert main(["watch", str(tmp_path / "w"), "--once"]) == 2
        page = capsys.readouterr().out
        assert re.search(r"dfa of mine, .*every 1 steps: running, step 3", page)
        assert re.search(r"D1: fails.* step 1", page)
        assert re.search(r"direction: passes, .* step 0\n", page)
        watch.finish()
        assert main(["watch", str(tmp_path / "w"), "--once", "--json"]) == 0
        state = json.loads(capsys.readouterr().out)
        assert state["status"] == "done"
        assert state["last"] == rows_of(tmp_path / "w")[-1]
        assert state["first"]["D1"] == 1
        assert "D1" in state["raised"]
        assert state["says"] == "finished after step 3; verdict: walked_back"

    def test_it_follows_until_the_training_ends(self, tmp_path, capsys):
        watch = wb.Watch(net(), batches(), every=1, out=tmp_path / "w")

        def later():
            time.sleep(0.2)
            watch.step()
            watch.finish()

        thread = threading.Thread(target=later)
        thread.start()
        code = main(["watch", str(tmp_path / "w"), "--json", "--interval", "0.02"])
        thread.join()
        states = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert code == 0
        assert [state["status"] for state in (states[0], states[-1])] == ["running", "done"]
        assert [states[0]["looks"], states[-1]["looks"]] == [1, 2]

    # Interrupting a process while it draws depends on timing, which is not reliable on a busy machine.
    @pytest.mark.parametrize("is_done", [True, pytest.param(False, marks=pytest.mark.slow)])
    def test_in_a_terminal_the_table_stays_until_the_end_or_ctrl_c(self, tmp_path, is_done):
        watch = wb.Watch(net(), batches(), every=1, out=tmp_path / "w", method_name="mine")
        if is_done:
            watch.finish()
        command = [sys.executable, "-m", "walkback", "watch", str(tmp_path / "w"), "--interval", "0.05"]
        ours, theirs = os.openpty()

        def enable_interrupts():
            # Processes that a shell starts in the background ignore SIGINT, and so do their children.
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        pipes = {"stdout": theirs, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, preexec_fn=enable_interrupts, **pipes) as child:
            try:
                os.close(theirs)
                shown = os.read(ours, 10_000).decode()
                while "every 1 steps" not in shown:
                    shown += os.read(ours, 10_000).decode()
                # Keep reading, or the process blocks on its last output.
                reader = threading.Thread(target=_drain, args=(ours,), daemon=True)
                reader.start()
                if not is_done:
                    child.send_signal(signal.SIGINT)
                errors = child.communicate(timeout=60)[1]
            finally:
                child.kill()
        reader.join(timeout=10)
        os.close(ours)
        assert child.returncode == (0 if is_done else 2)
        assert ("interrupted" in errors) is not is_done
        assert "Traceback" not in errors

    def test_a_run_of_train(self, tmp_path, capsys):
        wb.train("bp", arch="resmlp:d=8,depth=2", data="prototypes:train=96,test=256,dim=6", epochs=3, batch=16,
                 out=tmp_path / "runs")  # fmt: skip
        (folder,) = (tmp_path / "runs").iterdir()
        assert main(["watch", str(folder), "--once", "--json"]) == 0
        state = json.loads(capsys.readouterr().out)
        assert (state["unit"], state["looks"], state["status"]) == ("epoch", 3, "done")
        assert state["last"] == wb.load(folder).log()[-1]
        assert main(["watch", str(folder), "--once"]) == 0
        page = capsys.readouterr().out
        assert "epoch 3" in page
        assert "not measured" in page
        assert "passes" not in page
        # Rows with the values of the detectors are judged by them.
        last = json.loads((folder / "train.jsonl").read_text().splitlines()[-1])
        row = {**last, "growth": 80.0, "grad_top": 5e-7, "direction": None, "hidden": [1.0, 80.0], "grad": [1e-6, 5e-7]}
        with (folder / "train.jsonl").open("a") as file:
            file.write(json.dumps({**row, "epoch": 4}) + "\n")
        tiny.remove_hashes(folder)
        main(["watch", str(folder), "--once", "--json"])
        state = json.loads(capsys.readouterr().out)
        assert state["first"] == {"D1": 4, "D2": None, PAPERS_D2: 4, "direction": None}
        assert main(["watch", str(tmp_path / "runs"), "--once"]) == 3
        assert folder.name in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["nowhere"], "no folder nowhere"),
            (["."], "(watch.json) nor a run (run.json)"),
            ([".", "--interval", "0"], "--interval"),
        ],
    )
    def test_invalid_input_is_refused(self, tmp_path, monkeypatch, capsys, words, message):
        monkeypatch.chdir(tmp_path)
        assert main(["watch", *words]) == 3
        assert message in capsys.readouterr().err

    def test_it_needs_no_torch(self, tmp_path):
        wb.Watch(net(), batches(), out=tmp_path / "w").finish()
        code = (
            "import sys; from walkback.cli.main import main\n"
            f"assert main(['watch', {str(tmp_path / 'w')!r}, '--once']) == 0\n"
            "assert 'torch' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @given(st.lists(st.none() | st.floats(-1e30, 1e30), max_size=100))
    def test_a_sparkline_has_a_bar_for_each_number_it_shows(self, values):
        line = sparkline(values)
        known = [value for value in values if value is not None]
        assert len(line) <= WATCH_WIDTH
        assert set(line) <= {*BARS, " "}
        if known and len(values) <= WATCH_WIDTH:
            assert len(line) == len(values)
            assert [bar == " " for bar in line] == [value is None for value in values]
            assert line[values.index(max(known))] == max(line)
            assert line[values.index(min(known))] == min(bar for bar in line if bar != " ")


def test_the_package_exports_watch_without_importing_torch():
    code = "import sys, walkback; assert 'Watch' in walkback.__all__; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert wb.Watch is wb.Watch
    assert not hasattr(wb, "Watcher")
    assert os.fspath(Path(sys.modules[wb.Watch.__module__].__file__)).endswith("watching/watch.py")


def _drain(terminal):
    with contextlib.suppress(OSError):  # The other end was closed.
        while os.read(terminal, 10_000):
            pass
