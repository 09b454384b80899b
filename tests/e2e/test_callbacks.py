"""Trainings with Lightning and Hugging Face's Trainer, where they are installed, with and without the callback.

Each is tiny: random weights, synthetic data, seconds. Tested: rows at the right steps, a stop that writes the card, and
weights equal bit for bit to those of the same training without the callback.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import walkback as wb
from walkback.judge.card import read_card
from walkback.watching.journal import WATCH_LOG, WATCH_RECORD

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
    # Lightning and tqdm leave monitor threads and sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
]

CLASSES, COUNT = 4, 512


def rows_of(folder):
    return [json.loads(line) for line in (folder / WATCH_LOG).read_text().splitlines()]


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def assert_finished(out, steps, verdict="inconclusive"):
    """The card exists, and the journal records how the training ended."""
    record = json.loads((out / WATCH_RECORD).read_text())
    assert record["status"] == "done"
    assert record["reason"] == f"finished after step {steps}"
    assert record["verdict"] == verdict == read_card(out / "report.json")["verdict"]
    assert (out / "report.html").is_file()


class TestLightning:
    @pytest.fixture
    def lightning(self):
        return pytest.importorskip("lightning.pytorch")

    @pytest.fixture
    def fit(self, lightning, tmp_path):
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.BatchNorm1d(16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.2))

            def forward(self, h):
                return h + self.net(h)

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(6, 16), *[Block() for _ in range(3)], nn.Linear(16, CLASSES))

            def forward(self, x):
                return self.net(x)

            def training_step(self, batch, _index):
                x, y = batch
                loss = F.cross_entropy(self(x), y)
                self.log("loss", loss)
                return loss

            def validation_step(self, batch, _index):
                self.log("val_loss", F.cross_entropy(self(batch[0]), batch[1]))

            def configure_optimizers(self):
                return torch.optim.AdamW(self.parameters(), lr=1e-2)

        def run(callbacks=(), epochs=2, explode_at=None, **settings):
            lightning.seed_everything(0, verbose=False)
            x, y = torch.randn(COUNT, 6), torch.randint(CLASSES, (COUNT,))
            data = TensorDataset(x, y)
            module = Module()
            if explode_at is not None:
                module.on_train_batch_start = lambda batch, index: _explode(module.net[1:4], index == explode_at)
            trainer = lightning.Trainer(
                max_epochs=epochs, accelerator="cpu", devices=1, default_root_dir=tmp_path, callbacks=list(callbacks),
                enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, **settings,
            )  # fmt: skip
            trainer.fit(module, DataLoader(data, 32, shuffle=True), DataLoader(data, 64))
            return trainer, module

        return run

    @staticmethod
    def batches():
        draws = torch.Generator().manual_seed(9)
        return [
            (torch.randn(128, 6, generator=draws), torch.randint(CLASSES, (128,), generator=draws)) for _ in range(8)
        ]

    def watching(self, out, **settings):
        from walkback.watching.lightning import WatchCallback

        return WatchCallback(self.batches(), out=out, **settings)

    def test_the_callback_does_not_change_the_training(self, fit, tmp_path):
        out = tmp_path / "watch"
        callback = self.watching(out, every=5)
        trainer, module = fit([callback])
        _, bare = fit()
        assert trainer.global_step == 32
        assert [row["step"] for row in rows_of(out)] == [0, 5, 10, 15, 20, 25, 30]
        assert [row["epoch"] for row in rows_of(out)] == [None, 0, 0, 0, 1, 1, 1]
        assert same(module.state_dict(), bare.state_dict())
        assert module.trainer.global_step == 32, "the module has its trainer again"
        assert_finished(out, 32)
        assert callback.watch.report.claims["alignment"].outcome == "not_made"

    def test_steps_are_counted_per_optimiser_step(self, fit, tmp_path):
        out = tmp_path / "watch"
        trainer, module = fit([self.watching(out, every=3)], accumulate_grad_batches=2)
        _, bare = fit(accumulate_grad_batches=2)
        assert trainer.global_step == 16
        assert [row["step"] for row in rows_of(out)] == [0, 3, 6, 9, 12, 15]
        assert same(module.state_dict(), bare.state_dict())

    def test_every_epoch_and_a_submodule(self, fit, tmp_path):
        out = tmp_path / "watch"
        fit([self.watching(out, every=None, module="net")], epochs=3)
        assert [(row["step"], row["epoch"]) for row in rows_of(out)] == [(0, None), (16, 0), (32, 1), (48, 2)]
        assert json.loads((out / WATCH_RECORD).read_text())["model"] == "Sequential"
        with pytest.raises(wb.InputError, match=r"module='nowhere'.*Module"):
            fit([self.watching(tmp_path / "other", module="nowhere")])

    def test_a_mixed_precision_model_is_measured_in_float32(self, fit, tmp_path):
        out = tmp_path / "watch"
        with torch.backends.mkldnn.flags(enabled=False):
            _, module = fit([self.watching(out, every=8)], precision="bf16-mixed")
            _, bare = fit(precision="bf16-mixed")
            report = wb.diagnose(module, self.batches())
        assert same(module.state_dict(), bare.state_dict())
        assert rows_of(out)[-1]["step"] == 32
        assert rows_of(out)[-1]["grad"] == [layer.grad_norm_128.value for layer in report.quantities.layers]

    def test_a_stop_writes_the_card(self, fit, tmp_path):
        out = tmp_path / "watch"
        callback = self.watching(out, every=4, stop_on=["D1"])
        trainer, _ = fit([callback], epochs=4, explode_at=9)
        assert trainer.global_step == 12
        assert trainer.should_stop
        record = json.loads((out / WATCH_RECORD).read_text())
        assert (record["status"], record["reason"]) == ("stopped", "stopped at step 12 by D1")
        assert record["first"]["D1"] == 12
        card = read_card(out / "report.json")
        assert next(check for check in card["checks"] if check["id"] == "D1")["status"] == "raised"
        assert [row["step"] for row in rows_of(out)] == [0, 4, 8, 12]

    def test_an_exception_is_recorded(self, fit, tmp_path, lightning):
        class Failing(lightning.Callback):
            def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
                if batch_idx == 5:
                    raise ZeroDivisionError

        out = tmp_path / "watch"
        with pytest.raises(ZeroDivisionError):
            fit([self.watching(out, every=2), Failing()])
        record = json.loads((out / WATCH_RECORD).read_text())
        assert (record["status"], record["reason"]) == ("interrupted", "ZeroDivisionError after step 6")

    def test_the_callback_is_a_lightning_callback_and_can_be_pickled(self, lightning, tmp_path):
        callback = self.watching(tmp_path / "watch", every=3)
        assert isinstance(callback, lightning.Callback)
        assert type(pickle.loads(pickle.dumps(callback))) is type(callback)


class TestHuggingFace:
    @pytest.fixture
    def transformers(self):
        pytest.importorskip("accelerate")
        return pytest.importorskip("transformers")

    @pytest.fixture
    def fit(self, transformers, tmp_path):
        def model(kind):
            if kind == "bert":
                config = transformers.BertConfig(
                    vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
                    max_position_embeddings=8, num_labels=CLASSES,
                )  # fmt: skip
                return transformers.BertForSequenceClassification(config)
            config = transformers.GPT2Config(
                vocab_size=50, n_positions=8, n_embd=16, n_layer=3, n_head=2, num_labels=CLASSES, pad_token_id=0,
                bos_token_id=1, eos_token_id=1,
            )  # fmt: skip
            return transformers.GPT2ForSequenceClassification(config)

        def run(kind="bert", callbacks=(), epochs=2, explode_at=None, **settings):
            transformers.set_seed(0)
            draws = torch.Generator().manual_seed(1)
            data = [
                {"input_ids": torch.randint(1, 50, (6,), generator=draws), "labels": index % CLASSES}
                for index in range(256)
            ]
            made = model(kind)
            args = transformers.TrainingArguments(
                output_dir=str(tmp_path / "hf"), num_train_epochs=epochs, per_device_train_batch_size=16, report_to=[],
                save_strategy="no", logging_strategy="no", learning_rate=1e-3, use_cpu=True,
                disable_tqdm=True, seed=0, dataloader_pin_memory=False, **settings,
            )  # fmt: skip
            asked = list(callbacks)
            if explode_at is not None:
                asked.insert(0, _exploder(transformers, explode_at))
            trainer = transformers.Trainer(model=made, args=args, train_dataset=data, callbacks=asked)
            trainer.train()
            return trainer, made

        return run

    @staticmethod
    def batches():
        draws = torch.Generator().manual_seed(9)
        return [
            {
                "input_ids": torch.randint(1, 50, (64, 6), generator=draws),
                "labels": torch.randint(CLASSES, (64,), generator=draws),
            }
            for _ in range(16)
        ]

    def watching(self, out, **settings):
        from walkback.watching.huggingface import WatchCallback

        return WatchCallback(self.batches(), out=out, **settings)

    @pytest.mark.parametrize("kind", ["bert", "gpt2"])
    def test_the_callback_does_not_change_the_training(self, fit, tmp_path, kind, transformers):
        out = tmp_path / "watch"
        callback = self.watching(out, every=7)
        assert isinstance(callback, transformers.TrainerCallback)
        trainer, model = fit(kind, [callback])
        _, bare = fit(kind)
        assert trainer.state.global_step == 32
        assert [row["step"] for row in rows_of(out)] == [0, 7, 14, 21, 28]
        assert rows_of(out)[1]["epoch"] == pytest.approx(7 / 16)
        assert len(rows_of(out)[-1]["hidden"]) == 4
        assert same(model.state_dict(), bare.state_dict())
        assert_finished(out, 32)

    def test_a_mixed_precision_model_is_measured_in_float32(self, fit, tmp_path, transformers):
        """Accelerate replaces the forward of the model by one under autocast; measurements use the original."""
        out = tmp_path / "watch"
        with torch.backends.mkldnn.flags(enabled=False):
            _, model = fit(callbacks=[self.watching(out, every=8)], bf16=True)
            _, bare = fit(bf16=True)
            assert "_original_forward" in model.__dict__
            fresh = type(model)(model.config)
            fresh.load_state_dict(model.state_dict())
            report = wb.diagnose(fresh, self.batches())
        assert same(model.state_dict(), bare.state_dict())
        assert rows_of(out)[-1]["step"] == 32
        assert rows_of(out)[-1]["grad"] == [layer.grad_norm_128.value for layer in report.quantities.layers]
        card = read_card(out / "report.json")
        assert [row["grad_norm_128"]["value"] for row in card["layers"]] == rows_of(out)[-1]["grad"]

    def test_every_epoch_with_accumulation(self, fit, tmp_path):
        out = tmp_path / "watch"
        _, model = fit(callbacks=[self.watching(out, every=None)], gradient_accumulation_steps=2)
        _, bare = fit(gradient_accumulation_steps=2)
        assert [row["step"] for row in rows_of(out)] == [0, 8, 16]
        assert same(model.state_dict(), bare.state_dict())

    def test_a_stop_writes_the_card(self, fit, tmp_path):
        out = tmp_path / "watch"
        trainer, _ = fit(callbacks=[self.watching(out, every=4, stop_on="D1")], epochs=4, explode_at=9)
        assert trainer.state.global_step == 12
        record = json.loads((out / WATCH_RECORD).read_text())
        assert (record["status"], record["reason"]) == ("stopped", "stopped at step 12 by D1")
        assert record["first"]["D1"] == 12
        assert read_card(out / "report.json")["verdict"] == record["verdict"]
        assert [row["step"] for row in rows_of(out)] == [0, 4, 8, 12]


def _explode(blocks, now):
    if now:
        with torch.no_grad():
            for block in blocks:
                block.net[1].weight.mul_(1e5)


def _exploder(transformers, at):
    class Exploder(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            if state.global_step == at:
                with torch.no_grad():
                    for layer in model.bert.encoder.layer:
                        layer.output.LayerNorm.weight.mul_(1e3)

    return Exploder()


def test_tensorboard_reads_the_scalars(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from walkback.watching.tensorboard import TensorBoard

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(6, 8), *[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)], nn.Linear(8, 4)
    )
    watch = wb.Watch(
        model, TestLightning.batches(), every=1, out=tmp_path / "w", loggers=[TensorBoard(tmp_path / "tb")]
    )
    watch.step()
    watch._loggers[0]._writer.close()
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    for name in ("growth", "grad_top"):
        scalars = [(event.step, event.value) for event in events.Scalars(f"walkback/{name}")]
        assert scalars == [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in rows_of(tmp_path / "w")]


def test_of_two_processes_rank_zero_measures_and_both_stop(tmp_path):
    """Rank 0 measures and writes; rank 1 stops at the same step."""
    code = """
import sys
import torch, torch.distributed as dist, torch.nn.functional as F
from torch import nn
sys.path[:0] = [sys.argv[2]]
from test_callbacks import TestLightning
import walkback as wb
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}.meeting", rank=int(sys.argv[3]), world_size=2)
torch.manual_seed(0)
block = lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8))
net = nn.Sequential(nn.Linear(6, 8), block(), block(), block(), nn.Linear(8, 4))
model = nn.parallel.DistributedDataParallel(net)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
watch = wb.Watch(model, TestLightning.batches(), every=2, out=sys.argv[1], stop_on="D1")
draws = torch.Generator().manual_seed(dist.get_rank())
for step in range(20):
    x, y = torch.randn(32, 6, generator=draws), torch.randint(4, (32,), generator=draws)
    optimiser.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimiser.step()
    if step == 4:
        with torch.no_grad():
            net[2][1].weight.mul_(1e6)
    if watch.step():
        break
report = watch.finish()
print(dist.get_rank(), watch.steps, watch.should_stop, report is None)
dist.destroy_process_group()
"""
    here, out = str(Path(__file__).parent), tmp_path / "watch"
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(out), here, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    printed = [child.communicate(timeout=240)[0].strip() for child in children]
    assert printed == ["0 6 True False", "1 6 True True"]
    assert [row["step"] for row in rows_of(out)] == [0, 2, 4, 6]
    assert (out / "report.json").is_file()
