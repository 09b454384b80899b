"""The pitfalls: each reproduces with its stated size, and its right value equals an independent computation."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from walkback.cli.main import main
from walkback.core.catalog import Entry
from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.linting.rule import rules
from walkback.measure.subject import NetworkSubject
from walkback.pitfalls import CASES, small_networks
from walkback.pitfalls.case import PitfallOutcome, chosen_pitfalls, pitfalls, reproduce_pitfall
from walkback.pitfalls.cases import p19_tf32_reference as tf32

ROOT = Path(__file__).parents[2]
NUMBERS = range(1, 22)
LONG = (3, 9, 12)
"""The pitfalls that train longest."""


@cache
def outcome(number: int) -> PitfallOutcome:
    return reproduce_pitfall(pitfalls()[number])


class TestEveryPitfall:
    def test_all_numbers_of_the_protocol_are_present(self):
        assert list(pitfalls()) == list(NUMBERS)
        assert [entry.name[:3] for entry in pitfalls().values()] == [f"p{number:02}" for number in NUMBERS]

    @pytest.mark.parametrize("number", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in NUMBERS])
    def test_it_reproduces_with_the_size_in_its_docstring(self, number):
        found = outcome(number)
        assert found.reproduces
        assert found.size >= found.expected > (1 if found.unit == "x" else 0)
        assert found.wrong != found.right
        assert all(math.isfinite(value) for value in (found.wrong, found.right) if isinstance(value, float))
        stated = pitfalls()[number].facts["Size"]
        assert stated.startswith(f"at least {found.expected:g} {found.unit}")

    @pytest.mark.parametrize("number", [1, 2, 10, 14, 16, 17, 18, 19, 20])
    def test_it_is_deterministic_and_does_not_use_the_global_random_state(self, number):
        first, stream = outcome(number), torch.get_rng_state()
        assert reproduce_pitfall(pitfalls()[number]) == first
        assert torch.equal(torch.get_rng_state(), stream)

    @pytest.mark.parametrize("number", NUMBERS)
    def test_its_lint_codes_are_those_of_the_rules_that_name_it(self, number):
        codes = [code for code, rule in rules().items() if number in rule.pitfalls]
        assert pitfalls()[number].facts["Linter"] == (", ".join(codes) or "none")

    def test_the_documentation_page_equals_the_docstrings(self):
        rows = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in (ROOT / "docs" / "pitfalls.md").read_text().splitlines()
            if line.startswith("| ") and line[2].isdigit()
        ]
        keys = ("Wrong", "Right", "Size", "Linter")
        assert rows == [
            [str(number), entry.summary, *(entry.facts[key] for key in keys)] for number, entry in pitfalls().items()
        ]


class TestRightValues:
    """The right value of each pitfall, compared with an independent computation."""

    def test_1_is_the_root_of_the_sum_of_squares(self):
        h = torch.randn(128, 32, generator=generator(0, "norm")).tolist()
        assert outcome(1).right == pytest.approx(math.fsum(math.hypot(*row) for row in h) / 128, rel=1e-12)
        assert outcome(1).wrong == pytest.approx(1 / math.fsum(1 / abs(x) for row in h for x in row), rel=1e-5)

    def test_2_a_vector_is_aligned_with_itself(self):
        assert outcome(2).right == pytest.approx(1, abs=1e-12)
        assert outcome(2).wrong == pytest.approx((1e-9 / 1e-8) ** 2, rel=1e-9)
        assert outcome(2).note.endswith(": 0.1")

    def test_3_no_entry_is_really_zero(self):
        assert outcome(3).right == 1

    def test_4_fresh_feedback_is_unaligned(self):
        trained = small_networks.trained("dfa")
        x, y = small_networks.samples()
        frozen_pass = NetworkSubject(trained.net, trained.params).run(x, y)
        own = [
            _cosine(frozen_pass.error @ trained.state[f"B.{layer}"], frozen_pass.reference[layer])
            for layer in (1, 2, 3, 4)
        ]
        assert outcome(4).right == pytest.approx(np.mean(own), abs=1e-12)
        assert abs(outcome(4).wrong) < 0.03

    def test_5_the_signs_differ_and_two_aggregates_have_the_values_of_their_definitions(self):
        found = outcome(5)
        named = {word.split()[0]: float(word.split()[1]) for word in found.right.split(", ")}
        assert min(named.values()) < 0 < max(named.values())
        trained = small_networks.trained(small_networks.EXPLODING_DFA)
        x, y = small_networks.samples()
        frozen_pass = NetworkSubject(trained.net, trained.params).run(x, y)
        error = frozen_pass.error / frozen_pass.error.norm(dim=1, keepdim=True)
        layers = range(5)
        cosines = [_cosine(error @ trained.state[f"B.{layer}"], frozen_pass.reference[layer]) for layer in layers]
        weights = [frozen_pass.reference[layer].norm(dim=1).mean().item() for layer in layers]
        assert named["A1"] == pytest.approx(np.mean(cosines), abs=6e-4)
        assert named["A4"] == pytest.approx(np.average(cosines, weights=weights), abs=6e-4)

    def test_7_the_missing_file_is_named(self):
        assert outcome(7).wrong == pytest.approx(1, abs=1e-12)
        assert outcome(7).right.startswith("inconclusive: ")
        assert "rule.safetensors" in outcome(7).right

    @pytest.mark.parametrize("number", [8, 10])
    def test_8_and_10_exact_credit_is_aligned_within_one_pass(self, number):
        assert outcome(number).right == pytest.approx(1, abs=1e-12)

    def test_9_only_the_unmatched_margin_exceeds_the_threshold(self):
        unmatched, matched = (float(text.split()[0]) for text in (outcome(9).wrong, outcome(9).right))
        assert unmatched > 2 > matched

    def test_11_growth_is_that_of_the_raw_states(self):
        trained = small_networks.trained(small_networks.EXPLODING_DFA)
        states = NetworkSubject(trained.net, trained.params).run(*small_networks.samples()).states
        sizes = [np.linalg.norm(h.numpy(), axis=1).mean() for h in states]
        assert outcome(11).right == pytest.approx(max(np.divide(sizes[1:], sizes[:-1])), rel=1e-9)
        assert outcome(11).wrong == pytest.approx(1, abs=1e-3)

    @pytest.mark.slow
    def test_12_the_right_gain_is_the_whole_gain_minus_that_of_the_frozen_baseline(self):
        whole, remaining = (float(text.split()[0]) for text in (outcome(12).wrong, outcome(12).right))
        assert whole - remaining == pytest.approx(outcome(12).size, abs=0.11)

    def test_13_the_factor_is_the_ratio_of_the_batch_sizes(self):
        assert outcome(13).size == pytest.approx(8, rel=1e-6)
        first, second = (part.split()[0] for part in outcome(13).right.split(", "))
        assert first == second

    def test_14_the_unit_of_the_loss_does_not_matter(self):
        assert outcome(14).wrong == 1
        assert f"{outcome(14).right:.3f}" == outcome(14).note.split()[-1]

    def test_15_the_difference_comes_from_the_top_layer_alone(self):
        assert outcome(15).wrong == pytest.approx((3 * outcome(15).right + 1) / 4, abs=1e-12)
        assert abs(outcome(15).right) < 0.1

    def test_16_the_t_interval_has_its_nominal_coverage(self):
        assert outcome(16).right == pytest.approx(0.95, abs=0.015)
        # Three values are on one side of the mean with probability 2/8; the bootstrap interval is within their range.
        assert outcome(16).wrong == pytest.approx(0.75, abs=0.015)

    def test_17_the_gain_is_that_of_the_best_of_20_normals(self):
        draws = np.random.default_rng(1).standard_normal((20_000, 20)).max(axis=1).mean()
        assert outcome(17).size == pytest.approx(100 * math.sqrt(0.1 * 0.9 / 500) * draws, rel=0.1)
        assert outcome(17).right == pytest.approx(0.1, abs=0.005)

    def test_18_the_right_error_keeps_its_direction(self):
        assert outcome(18).right == pytest.approx(1, abs=1e-9)

    def test_20_what_random_branches_add_is_not_aligned(self):
        assert abs(outcome(20).right) < 0.05

    def test_21_the_step_does_not_depend_on_the_unit_of_the_loss(self):
        assert outcome(21).right == pytest.approx(1, rel=1e-6)


class TestTf32:
    def test_rounding_is_to_the_nearest_number_with_ten_bits(self):
        x = torch.randn(10_000, generator=generator(0, "tf32")) * 1e-3
        bits = x.view(torch.int32)
        down = (bits & ~0x1FFF).view(torch.float32)
        up = ((bits & ~0x1FFF) + 0x2000).view(torch.float32)
        found = tf32.to_tf32(x)
        assert torch.equal(found, torch.where((x - down).abs() <= (up - x).abs(), down, up))
        assert not torch.equal(found, x)
        assert torch.equal(tf32.to_tf32(found), found)

    def test_all_three_products_are_rounded(self):
        draws = generator(0, "products")
        x, w, b, c = (torch.randn(shape, generator=draws) for shape in ((8, 5), (3, 5), (3,), (8, 3)))
        inputs = [leaf.requires_grad_() for leaf in (x, w, b)]
        got = tf32.rounded_linear("", *inputs)
        grads = torch.autograd.grad(got, inputs, c)
        with torch.no_grad():
            rx, rw, rc = (tf32.to_tf32(each) for each in (x, w, c))
            assert torch.allclose(got, rx @ rw.T + b, rtol=1e-6)
            for grad, expected in zip(grads, (rc @ rw, rc.T @ rx, c.sum(0)), strict=True):
                assert torch.allclose(grad, expected, rtol=1e-5, atol=1e-6)

    def test_the_tf32_switch_is_restored(self):
        before = torch.backends.cuda.matmul.allow_tf32
        outcome(19)
        assert torch.backends.cuda.matmul.allow_tf32 == before

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    def test_a_gpu_uses_its_tf32_switch(self):
        assert "GPU" in outcome(19).note
        assert "emulated" not in outcome(19).note
        assert outcome(19).reproduces


class TestSelection:
    def test_selected_numbers_are_sorted_and_unique(self):
        assert list(chosen_pitfalls(["14", "02", "2"])) == [2, 14]
        assert list(chosen_pitfalls([])) == list(NUMBERS)

    @pytest.mark.parametrize("word", ["0", "22", "-1", "two", "p01", "²"])
    def test_an_unknown_number_is_an_input_error(self, word):
        with pytest.raises(InputError, match=rf"'{word}'.*1 to 21"):
            chosen_pitfalls([word])

    def test_a_case_of_another_package_needs_a_number(self, monkeypatch):
        monkeypatch.setattr(type(CASES), "entries", lambda self: [Entry("mine", "somewhere", "Mine.")])
        with pytest.raises(InputError, match=r"'mine'.*p22_short_name"):
            pitfalls()


class TestCommand:
    def test_text_has_both_values_and_the_size_of_each(self, capsys):
        assert main(["pitfalls", "16", "2"]) == 0
        text = capsys.readouterr().out
        assert text.index("cosine clamp") < text.index("three seeds")
        assert "wrong  0.01  F.cosine_similarity" in text
        assert "error  100 x, reproduces (stated: at least 99)" in text
        assert text.endswith("\n2 of 2 reproduce.\n")

    def test_json_is_one_object_for_each(self, capsys):
        assert main(["pitfalls", "2", "18", "--json"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["number"] for row in found] == [2, 18]
        assert found[0]["wrong"] == outcome(2).wrong
        assert found[0]["lint"] == ["WB002", "WB015"]
        assert all(row["reproduces"] and row["size"] >= row["expected"] for row in found)

    @pytest.mark.parametrize("size", [0.5, math.nan])
    def test_a_pitfall_that_does_not_reproduce_is_exit_code_1(self, size, monkeypatch, capsys):
        monkeypatch.setattr(
            "walkback.pitfalls.case.reproduce_pitfall", lambda entry: PitfallOutcome(1.0, size, size, "x", 2.0)
        )
        assert main(["pitfalls", "1"]) == 1
        assert "DOES NOT REPRODUCE" in capsys.readouterr().out
        assert main(["pitfalls", "1", "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["reproduces"] is False

    def test_an_unknown_number_is_exit_code_3(self, capsys):
        assert main(["pitfalls", "99"]) == 3
        error = capsys.readouterr().err
        assert "'99'" in error
        assert "1 to 21" in error

    def test_the_list_needs_no_torch(self):
        code = "import sys, walkback.cli.main as m; m.main(['pitfalls', '--list']); sys.exit('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert [int(line.split()[0]) for line in done.stdout.splitlines()] == list(NUMBERS)

    @pytest.mark.slow
    def test_all_of_them_reproduce(self, capsys):
        assert main(["pitfalls"]) == 0
        assert capsys.readouterr().out.endswith("\n21 of 21 reproduce.\n")


def _cosine(left: torch.Tensor, right: torch.Tensor) -> float:
    a, b = left.double().numpy(), right.double().numpy()
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean())
