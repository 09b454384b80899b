"""The example of a character-level GPT trained by DFA: its numbers by hand, kills, and the lines it adds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from example_program import EXAMPLES, T_2, added_lines, check_kills, load_example, run_program, stored_model
from walkback.core.measurements import GROUP, Measurements

FOLDER = EXAMPLES / "char-gpt"
DRIVER = """
import sys
sys.path.insert(0, {folder!r})
import after
import walkback as wb
print(wb.audit(after.train, methods=["dfa", "bp"], seeds=after.SEEDS, build=after.GPT, step_fn=after.letter_losses,
               eval_batches=[after.windows(after.TEST, after.SIZE["train"])], credit=after.credit,
               update=after.dfa_update, out="audit", resume=True, checkpoint_seconds=0.0, device="cpu"))
"""
"""The example's audit with a checkpoint after every epoch."""


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


def samples_of(example):
    return example.windows(example.TEST, example.SIZE["train"])


def trained(example, audited, name):
    return stored_model(example.GPT(), audited / name)


def cosines(left, right):
    return F.cosine_similarity(left.flatten(1), right.flatten(1), eps=1e-300)


@pytest.mark.slow
class TestNumbers:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_norms_cosines_and_used_cosines_are_those_by_hand(self, example, audited, seed):
        model = trained(example, audited, f"dfa-s{seed}")
        x, y = samples_of(example)
        states = model.states(x)
        logits = model.logits(states[-1])
        losses = F.cross_entropy(logits.transpose(1, 2), y, reduction="none").mean(1)
        true = torch.autograd.grad(losses.sum(), states)
        error = (logits.softmax(-1) - F.one_hot(y, len(example.ALPHABET))).detach() / y.shape[1]
        credits = [error @ matrix.double() for matrix in example.draw_feedback(seed)]
        by_hand = np.stack([cosines(a, g).numpy() for a, g in zip(credits, true, strict=True)])
        by_token = np.stack(
            [F.cosine_similarity(a, g, dim=-1, eps=1e-300).mean(1).numpy() for a, g in zip(credits, true, strict=True)]
        )
        arrays = Measurements.load(audited / f"dfa-s{seed}" / "measurements.npz").arrays
        for index, state in enumerate(states):
            assert np.allclose(arrays["hidden_norm"][index], state.detach().flatten(1).norm(dim=1), rtol=1e-4)
            assert np.allclose(arrays["grad_norm64"][index], true[index].flatten(1).norm(dim=1), rtol=1e-4, atol=1e-9)
        assert np.allclose(arrays["credit_cos"], by_hand, atol=1e-4)
        assert np.allclose(arrays["token_cos"], by_token, atol=1e-4)
        assert np.allclose(arrays["used_cos"], by_hand[1:], atol=1e-4)
        card = json.loads((audited / f"dfa-s{seed}" / "report.json").read_text())
        for block, cosine in zip(card["blocks"], by_hand[1:].mean(1), strict=True):
            assert block["used_cos"]["value"] == pytest.approx(cosine, abs=1e-4)

    @pytest.mark.parametrize("seed", [0, 2])
    def test_update_cosines_are_those_by_hand(self, example, audited, seed):
        model = trained(example, audited, f"dfa-s{seed}")
        feedback = [matrix.double() for matrix in example.draw_feedback(seed)]
        x, y = samples_of(example)
        arrays = Measurements.load(audited / f"dfa-s{seed}" / "measurements.npz").arrays
        for group in range(2):
            rows = slice(group * GROUP, (group + 1) * GROUP)
            parts = []
            for is_dfa in (True, False):
                model.zero_grad()
                if is_dfa:
                    example.dfa_update(model, (x[rows], y[rows]), feedback)
                else:
                    example.letter_losses(model, (x[rows], y[rows])).mean().backward()
                parts.append([torch.cat([p.grad.flatten() for p in block.parameters()]) for block in model.blocks])
            by_hand = [float(F.cosine_similarity(a, b, dim=0, eps=0)) for a, b in zip(*parts, strict=True)]
            assert np.allclose(arrays["update_cos"][:, group], by_hand, atol=1e-4)

    def test_margins_and_intervals_are_those_by_hand(self, example, audited):
        batch = samples_of(example)

        def losses(name):
            with torch.no_grad():
                models = [trained(example, audited, f"{name}-s{seed}") for seed in example.SEEDS]
                return [float(example.letter_losses(model, batch).mean()) for model in models]

        for name in ("dfa", "bp"):
            card = json.loads((audited / f"{name}-s0" / "report.json").read_text())
            own, frozen, stated = losses(name), losses(f"{name}-frozen"), card["claim"]["losses"]
            assert stated["headline"] == pytest.approx(own, rel=1e-5)
            assert stated["frozen"]["method_shell"] == pytest.approx(frozen, rel=1e-5)
            assert stated["frozen"]["bp_shell"] == pytest.approx(losses("bp-frozen"), rel=1e-5)
            gains = np.array(frozen) - np.array(own)
            half = T_2 * gains.std(ddof=1) / math.sqrt(3)
            assert card["statistics"]["mean"] == pytest.approx(gains.mean(), abs=1e-5)
            assert card["statistics"]["interval"] == pytest.approx([gains.mean() - half, gains.mean() + half], abs=1e-4)

    def test_the_card_is_complete_and_confirmed(self, audited):
        card = json.loads((audited / "dfa-s1" / "report.json").read_text())
        assert not [item for item in card["checklist"] if "[TODO]" in item["answer"]]
        assert "VERIFY: confirmed" in run_program(audited, "-m", "walkback", "verify", "dfa-s1", "dfa-s1")


@pytest.mark.slow
def test_killed_at_three_moments_it_goes_on_to_the_same_bits_and_then_trains_nothing(audited, tmp_path):
    (tmp_path / "driver.py").write_text(DRIVER.format(folder=str(FOLDER)))
    printed = (audited.parent / "printed.txt").read_text()
    check_kills(tmp_path, tmp_path / "driver.py", audited, printed, seed=7)
