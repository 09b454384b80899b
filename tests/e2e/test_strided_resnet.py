"""The example of a strided ResNet trained by DFA: its numbers by hand, killed and gone on, and the lines it adds."""

from __future__ import annotations

import difflib
import importlib.util
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from walkback.core.measurements import GROUP, Measurements
from walkback.runs import store

FOLDER = Path(__file__).parents[2] / "examples" / "strided-resnet"
DRIVER = """
import sys
sys.path.insert(0, {folder!r})
import after
import walkback as wb
print(wb.audit(after.train, methods=["dfa", "bp"], seeds=after.SEEDS, eval_batches=[after.images(after.TEST, first=3)],
               build=after.build, out="audit", resume=True, checkpoint_seconds=0.0, device="cpu"))
"""
"""The example's audit with a checkpoint after every epoch."""
T_2 = 4.302652729696142
"""97.5% quantile of Student's t with 2 degrees of freedom."""
BLOCKS = 6


def test_it_is_the_researchers_code_and_at_most_fifteen_lines():
    before, after = ((FOLDER / name).read_text().splitlines() for name in ("before.py", "after.py"))
    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and line[2:].strip()]
    assert 0 < len(added) <= 15
    assert "walkback" not in "\n".join(before)


def run(folder, *program, kill_after=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SIZE": "tiny"}
    with subprocess.Popen(
        [sys.executable, *program],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if kill_after is not None:
            time.sleep(kill_after)
            process.send_signal(signal.SIGKILL)
        printed, errors = process.communicate()
    assert kill_after is not None or process.returncode == 0, errors
    return printed


@pytest.fixture(scope="module")
def example():
    """The example's module, in its tiny size."""
    before = os.environ.get("SIZE")
    os.environ["SIZE"] = "tiny"
    spec = importlib.util.spec_from_file_location("strided_resnet_after", FOLDER / "after.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    os.environ.pop("SIZE") if before is None else os.environ.update(SIZE=before)
    return module


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    (folder / "printed.txt").write_text(run(folder, FOLDER / "after.py"))
    return folder / "audit"


def trained(example, audited, name):
    """The stored model in float64 and evaluation mode, loaded without walkback's help."""
    model = example.build(name.partition("-")[0])
    arrays = store.open_run(audited / name).params()
    model.load_state_dict({key: torch.from_numpy(value) for key, value in arrays.items()})
    return model.double().eval()


def true_gradients(model, x, y):
    """States, error, and the gradient of each sample's loss at each state; no hook is involved."""
    states = model.states(x)
    logits = model.head(states[-1].mean((2, 3)))
    true = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), states)
    return [s.detach() for s in states], logits.detach().softmax(1) - F.one_hot(y, logits.shape[1]), true


@pytest.mark.slow
class TestNumbers:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_norms_cosines_and_used_cosines_are_those_by_hand(self, example, audited, seed):
        model = trained(example, audited, f"dfa-s{seed}")
        x, y = example.images(example.TEST, first=3)
        states, error, true = true_gradients(model, x.double(), y)
        credits = [torch.einsum("nc,c...->n...", error, getattr(model, f"feedback{i}")) for i in range(BLOCKS + 1)]
        cosines = [
            torch.cosine_similarity(a.flatten(1), g.flatten(1), eps=1e-300) for a, g in zip(credits, true, strict=True)
        ]
        arrays = Measurements.load(audited / f"dfa-s{seed}" / "measurements.npz").arrays
        card = json.loads((audited / f"dfa-s{seed}" / "report.json").read_text())
        for index, layer in enumerate(card["layers"]):
            norms = states[index].flatten(1).norm(dim=1).numpy()
            assert np.allclose(arrays["hidden_norm"][index], norms, rtol=1e-4)
            assert layer["hidden_norm"]["value"] == pytest.approx(norms.mean(), rel=1e-4)
            gradient = true[index].flatten(1).norm(dim=1).numpy()
            assert np.allclose(arrays["grad_norm64"][index], gradient, rtol=1e-4, atol=1e-9)
            assert np.allclose(arrays["credit_cos"][index], cosines[index].numpy(), atol=1e-4)
        used = np.stack([each.numpy() for each in cosines[1:]])
        assert np.allclose(arrays["used_cos"], used, atol=1e-4)
        for block, cosine in zip(card["blocks"], used.mean(1), strict=True):
            assert block["used_cos"]["value"] == pytest.approx(cosine, abs=1e-4)

    @pytest.mark.parametrize("seed", [0, 2])
    def test_update_cosines_are_those_by_hand(self, example, audited, seed):
        model = trained(example, audited, f"dfa-s{seed}")
        x, y = example.images(example.TEST, first=3)
        arrays = Measurements.load(audited / f"dfa-s{seed}" / "measurements.npz").arrays
        for group in range(2):
            rows = slice(group * GROUP, (group + 1) * GROUP)
            parts = {}
            for dfa in (True, False):
                model.dfa = dfa
                model.zero_grad()
                F.cross_entropy(model(x[rows].double()), y[rows]).backward()
                parts[dfa] = [torch.cat([p.grad.flatten() for p in block.parameters()]) for block in model.blocks]
            by_hand = [float(F.cosine_similarity(a, b, dim=0, eps=0)) for a, b in zip(*parts.values(), strict=True)]
            assert np.allclose(arrays["update_cos"][:, group], by_hand, atol=1e-4)

    def test_margins_and_intervals_are_those_by_hand(self, example, audited):
        x, y = example.images(example.TEST, first=3)

        def accuracies(name):
            with torch.no_grad():
                models = [trained(example, audited, f"{name}-s{seed}") for seed in example.SEEDS]
                return [float((model(x.double()).argmax(1) == y).double().mean()) for model in models]

        frozen = {"dfa": accuracies("dfa-frozen"), "bp": accuracies("bp-frozen")}
        for name in ("dfa", "bp"):
            claim = json.loads((audited / f"{name}-s0" / "report.json").read_text())
            own = accuracies(name)
            # A sample may be so close to two classes that float64 decides differently.
            assert claim["claim"]["headline_acc"] == pytest.approx(own, abs=2 / example.TEST)
            assert claim["claim"]["frozen"]["method_shell"] == pytest.approx(frozen[name], abs=2 / example.TEST)
            assert claim["claim"]["frozen"]["bp_shell"] == pytest.approx(frozen["bp"], abs=2 / example.TEST)
            stated = claim["claim"]
            gains = 100 * (np.array(stated["headline_acc"]) - np.array(stated["frozen"]["method_shell"]))
            half = T_2 * gains.std(ddof=1) / math.sqrt(3)
            assert claim["statistics"]["mean"] == pytest.approx(gains.mean())
            assert claim["statistics"]["interval"] == pytest.approx([gains.mean() - half, gains.mean() + half])

    @pytest.mark.parametrize("seed", [0, 1, 2])
    @pytest.mark.parametrize("method", ["dfa", "bp"])
    def test_frozen_blocks_have_their_first_bits_and_their_statistics_go_on(self, example, audited, method, seed):
        torch.manual_seed(seed)
        first = example.build(method).state_dict()
        last = store.open_run(audited / f"{method}-frozen-s{seed}").params()
        for name, value in first.items():
            same = np.array_equal(value.numpy(), last[name])
            is_statistic = "running" in name or "num_batches" in name
            assert same == (name.startswith(("blocks", "feedback")) and not is_statistic), name

    def test_the_card_is_complete_and_confirmed(self, audited):
        card = json.loads((audited / "dfa-s1" / "report.json").read_text())
        assert not [item for item in card["checklist"] if "[TODO]" in item["answer"]]
        done = run(audited, "-m", "walkback", "verify", "dfa-s1", "dfa-s1")
        assert "VERIFY: confirmed" in done


def contents(folder):
    """The bits of every job, and of what was judged from them."""
    return {path.name: (path / store.MODEL).read_bytes() for path in folder.iterdir() if path.is_dir()}


@pytest.mark.slow
def test_killed_at_three_moments_it_goes_on_to_the_same_bits_and_then_trains_nothing(audited, tmp_path):
    program, draws = tmp_path / "driver.py", random.Random(5)
    program.write_text(DRIVER.format(folder=str(FOLDER)))
    for _ in range(3):
        run(tmp_path, program, kill_after=draws.uniform(3, 9))
    run(tmp_path, program)
    assert contents(tmp_path / "audit") == contents(audited)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("audit/*/run.json")}
    printed = run(tmp_path, program)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("audit/*/run.json")} == before
    first = (audited.parent / "printed.txt").read_text()
    assert printed.splitlines()[:3] == first.splitlines()[:3]
