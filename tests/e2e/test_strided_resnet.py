"""The example of a strided ResNet trained by DFA: its numbers by hand, killed and gone on, and the lines it adds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from example_program import EXAMPLES, T_2, added_lines, check_kills, load_example, run_program, stored_model
from walkback.core.measurements import GROUP, Measurements
from walkback.runs import store

FOLDER = EXAMPLES / "strided-resnet"
DRIVER = """
import sys
sys.path.insert(0, {folder!r})
import after
import walkback as wb
print(wb.audit(after.train, methods=["dfa", "bp"], seeds=after.SEEDS, eval_batches=[after.images(after.TEST, first=3)],
               build=after.build, out="audit", resume=True, checkpoint_seconds=0.0, device="cpu"))
"""
"""The example's audit with a checkpoint after every epoch."""
BLOCKS = 6


def test_it_is_the_researchers_code_and_at_most_fifteen_lines():
    assert 0 < len(added_lines(FOLDER)) <= 15


@pytest.fixture(scope="module")
def example():
    return load_example(FOLDER)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    (folder / "printed.txt").write_text(run_program(folder, FOLDER / "after.py"))
    return folder / "audit"


def trained(example, audited, name):
    return stored_model(example.build(name.partition("-")[0]), audited / name)


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
        done = run_program(audited, "-m", "walkback", "verify", "dfa-s1", "dfa-s1")
        assert "VERIFY: confirmed" in done


@pytest.mark.slow
def test_killed_at_three_moments_it_goes_on_to_the_same_bits_and_then_trains_nothing(audited, tmp_path):
    (tmp_path / "driver.py").write_text(DRIVER.format(folder=str(FOLDER)))
    printed = (audited.parent / "printed.txt").read_text()
    check_kills(tmp_path, tmp_path / "driver.py", audited, printed, seed=5)
