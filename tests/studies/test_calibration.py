"""Calibration: methods whose truth is known are what they claim to be, groups are judged as an audit judges them, and
rates count what they say."""

from __future__ import annotations

from dataclasses import replace

import fake_measurements as fakes
import numpy as np
import pytest
import torch
from planted import cells, holds

import walkback as wb
from walkback.core.configuration import grid
from walkback.core.random_streams import generator
from walkback.data.dataset import Dataset
from walkback.judge.alignment_claim import AlignmentFacts, NullScore
from walkback.judge.audit_table import make_audit_table
from walkback.judge.evidence import Evidence
from walkback.judge.quantities import quantities
from walkback.judge.report import judge
from walkback.judge.score_tests import PairedScoreTest
from walkback.judge.statistics import exact_interval, paired_score_margin
from walkback.measure.subject import FrozenPass
from walkback.runs.train_runs import TrainOptions
from walkback_papers.calibration import known_credits, own_loop
from walkback_papers.calibration.audited_methods import audited_results
from walkback_papers.calibration.own_loop import OwnTask, backward_pass
from walkback_papers.calibration.own_methods import ALIGNED, OWN_DEPTH_METHODS, own_results
from walkback_papers.calibration.rates import KnownMethod, Rate, mixed, rate
from walkback_papers.calibration.seed_results import THRESHOLDS, Answers, SeedResult, judge_group
from walkback_papers.results import Results
from walkback_papers.scale import SMOKE
from walkback_papers.studies import calibration

SCORE = NullScore("random rotations", 9.0, 3.0, 0.4)
STANDS = AlignmentFacts(cosine=0.3, scores=(SCORE,))
ABSENT = AlignmentFacts(cosine=0.0, scores=(NullScore("random rotations", 0.1, 3.0, 0.03),))


def answers(margin: float, samples: int = 1000, both: int = 500) -> Answers:
    """A network `margin` pp above its frozen baseline; 20 samples are right by the baseline alone."""
    gained = 20 + round(margin * samples / 100)
    return Answers(both, gained, 20, samples - both - gained - 20)


def seeds(margins, alignment=STANDS, bp=20.0, broken=""):
    return tuple(
        SeedResult(seed, answers(margin), answers(bp), broken, alignment)
        for seed, margin in enumerate(margins, start=1)
    )


def method(margins, aligned=True, **named):
    alignment = named.pop("alignment", STANDS)
    return KnownMethod("m", "there", seeds(margins, alignment), 0.1, True, aligned, **named)


class TestSeedResults:
    def test_counts_keep_accuracies_and_the_paired_test(self):
        draws = np.random.default_rng(0)
        ours, theirs = draws.random(300) < 0.6, draws.random(300) < 0.5
        found = Answers.of(ours, theirs)
        assert found.samples == 300
        assert found.accuracies == (ours.mean(), theirs.mean())
        rebuilt = paired_score_margin(*found.correct)
        assert rebuilt == paired_score_margin(list(ours), list(theirs))
        assert rebuilt.test == PairedScoreTest(found.trained_only, found.frozen_only, 300)

    def test_storing_keeps_what_decides(self):
        facts = AlignmentFacts(cosine=1 / 3, scores=(SCORE,), failing_blocks=(0, 2), unsure="why", has_update=False)
        result = SeedResult(7, answers(3), answers(20), "not finite", facts)
        again = SeedResult.from_json(result.to_json())
        assert again == replace(result, alignment=replace(facts, cosine=0.333333))
        assert "noise" not in result.to_json()["alignment"]

    @pytest.mark.parametrize("count", [1, 3])
    @pytest.mark.parametrize("measured", ["healthy", "exploded", "constant"])
    @pytest.mark.parametrize("margin", [-5, 2, 12])
    def test_a_group_is_judged_as_a_table_of_cards_judges_it(self, count, measured, margin):
        taken = fakes.healthy() if measured == "constant" else getattr(fakes, measured)()
        if measured == "constant":
            taken = replace(taken, facts={**taken.facts, "predicted_classes": 1})
        group = [
            SeedResult.of(seed, answers(margin + seed), answers(20), quantities(taken, THRESHOLDS))
            for seed in range(count)
        ]
        ours, theirs = zip(*(seed.own.accuracies for seed in group), strict=True)
        bp, bp_theirs = zip(*(seed.bp.accuracies for seed in group), strict=True)
        correct, frozen = group[0].own.correct
        bp_correct, bp_frozen = group[0].bp.correct
        evidence = Evidence.of(
            ours, {"method_shell": theirs, "bp_shell": bp_theirs}, bp, test_samples=1000,
            **({"correct": correct, "bp_correct": bp_correct,
                "frozen_correct": {"method_shell": frozen, "bp_shell": bp_frozen}} if count == 1 else {}),
        )  # fmt: skip
        context = {"arch": "net", "data": "set"}
        cards = [
            judge(taken, evidence, method_name="m", context={**context, "seed": seed}).to_json()
            for seed in range(count)
        ]
        (row,) = make_audit_table(cards).rows
        found = judge_group(group, 0.1, paired=True)
        assert (found.depth.outcome, found.depth.row) == (row.claims["depth"].outcome, row.claims["depth"].row)
        assert found.alignment.outcome == row.claims["alignment"].outcome
        assert found.headline == row.rulings["claims"].outcome

    def test_one_seed_without_pairs_has_the_wider_interval(self):
        (seed,) = seeds([5])
        paired, unpaired = (judge_group([seed], 0.1, paired=way).interval for way in (True, False))
        assert unpaired[0] < paired[0] < paired[1] < unpaired[1]

    @pytest.mark.slow
    def test_an_audit_gives_the_same_claims(self, tmp_path):
        where = {"arch": "resmlp:d=8,depth=2", "data": "prototypes:train=640,test=1024,dim=6,prototypes=8,labels=4"}
        training = {"epochs": 3, "lr": 0.01, "batch": 64}
        methods = ["bp", "dfa"]
        configs = grid(methods, seeds=[1, 2, 3], **where, **training)
        stored = audited_results(configs, TrainOptions(out=tmp_path / "stored", resume=True, device="cpu"))
        for n in (1, 3):
            for name, text in zip(("BP", "DFA"), methods, strict=True):
                group = [SeedResult.from_json(each) for each in stored["methods"][name][:n]]
                out = tmp_path / f"{text}{n}"
                audit = wb.audit(
                    text, seeds=list(range(1, n + 1)), out=out, oracle="none", device="cpu", **where, **training
                )
                (row,) = audit.table.rows
                found = judge_group(group, stored["majority_share"], paired=True)
                assert (found.depth.outcome, found.depth.reason) == (
                    row.claims["depth"].outcome,
                    row.claims["depth"].reason,
                )
                assert found.alignment.row == row.claims["alignment"].row
                assert found.headline == row.rulings["claims"].outcome


@pytest.fixture(scope="module")
def task():
    draws = torch.Generator().manual_seed(0)
    x, labels = torch.randn(1280, 6, generator=draws), torch.arange(1280) % 4
    x += 3 * torch.randn(4, 6, generator=draws)[labels]
    return OwnTask(Dataset(x[:256], labels[:256], x[256:], labels[256:], 4, digest="made up"), 8, 3, 10, 64)


@pytest.fixture(scope="module")
def trained(task):
    return task.trained(1, "backprop")


def gradients(model, task, training="backprop"):
    model.zero_grad()
    backward_pass(model, (task.data.train_x[:64], task.data.train_y[:64]), training)
    return {name: leaf.grad.clone() for name, leaf in model.named_parameters()}


class TestOwnLoop:
    def test_training_depends_on_the_seed_alone_and_leaves_the_global_generator(self, task, trained):
        torch.manual_seed(5)
        before = torch.get_rng_state()
        again, other = task.trained(1, "backprop"), task.trained(2, "backprop")
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.equal(again.head.weight, trained.head.weight)
        assert not torch.equal(other.head.weight, trained.head.weight)

    def test_training_learns_and_frozen_blocks_stay(self, task, trained):
        assert task.right(trained).float().mean() > 0.8
        frozen, first = task.trained(1, "backprop", frozen=True), task.network(1)
        assert all(map(torch.equal, frozen.blocks.parameters(), first.blocks.parameters()))
        assert not torch.equal(frozen.stem.weight, first.stem.weight)

    def test_the_flipped_sign_is_that_of_the_blocks_alone(self, task, trained):
        true, flipped = gradients(trained, task), gradients(trained, task, "flipped sign")
        for name, gradient in true.items():
            assert torch.equal(flipped[name], -gradient if name.startswith("blocks") else gradient)

    def test_redrawn_feedback_differs_in_each_pass_and_spares_the_head(self, task):
        model = task.trained(1, "redrawn feedback")
        first, second = gradients(model, task), gradients(model, task)
        assert torch.equal(first["head.weight"], second["head.weight"])
        assert not torch.allclose(first["blocks.0.first.weight"], second["blocks.0.first.weight"])

    def test_a_lying_backward_pass_leaves_the_predictions(self, task, trained):
        x = task.data.test_x[:64]
        for share in (0.0, 0.7, 1.0):
            model = own_loop.with_feedback(trained, 1, share)
            assert torch.equal(model(x), trained(x))
            true, found = gradients(trained, task), gradients(model, task)
            same = torch.allclose(true["blocks.0.first.weight"], found["blocks.0.first.weight"], atol=1e-6)
            assert same == (share == 1.0)

    def test_planted_damage(self, task, trained):
        reset = own_loop.with_blocks_reset(trained, task.network(1))
        assert all(map(torch.equal, reset.blocks.parameters(), task.network(1).blocks.parameters()))
        assert torch.equal(reset.head.weight, trained.head.weight)
        constant = own_loop.with_constant_predictions(trained)
        assert len(constant(task.data.test_x).argmax(1).unique()) == 1
        exploded, h = own_loop.with_exploded_stream(trained), torch.randn(5, 8)
        branch, plain = exploded.branches[0](h), trained.branches[0](h)
        assert torch.allclose(branch, own_loop.EXPLOSION * plain, rtol=1e-4)


def frozen_pass(dtype=torch.float32):
    draws = torch.Generator().manual_seed(0)
    states = tuple(torch.randn(16, 8, generator=draws).to(dtype) for _ in range(4))
    reference = tuple(torch.randn(16, 8, generator=draws).to(dtype) for _ in range(4))
    x, error = torch.randn(16, 6, generator=draws), torch.randn(16, 5, generator=draws).to(dtype)
    return FrozenPass(
        x=x, y=torch.zeros(16, dtype=torch.long), states=states, reference=reference, losses=torch.zeros(16),
        logits=error, error=error,
    )  # fmt: skip


def cosine(left, right):
    return torch.nn.functional.cosine_similarity(left, right)


class TestKnownCredits:
    @pytest.mark.parametrize("wanted", [0.0, 0.1, 0.5, 1.0])
    def test_a_turned_gradient_has_exactly_this_cosine_and_its_length(self, wanted):
        seen = frozen_pass(torch.float64)
        for credit, g in zip(known_credits.gradient_at_cosine(wanted, 1)(seen), seen.reference, strict=True):
            torch.testing.assert_close(cosine(credit, g), torch.full((16,), wanted, dtype=torch.float64))
            torch.testing.assert_close(credit.norm(dim=1), g.norm(dim=1))

    def test_noise_is_where_it_is_said_to_be(self):
        seen = frozen_pass(torch.float64)
        found = [
            float(cosine(a, g).mean())
            for a, g in zip(known_credits.noise_at({1}, 0.5, 1)(seen), seen.reference, strict=True)
        ]
        assert found == pytest.approx([0.5, 0.0, 0.5, 0.5])

    def test_the_replay_in_float64_sees_the_same_credit(self):
        projected = known_credits.projected_error(generator(1, "any"))
        for credit in (known_credits.gradient_at_cosine(0.5, 1), known_credits.noise_at({0}, 0.5, 1), projected):
            for single, double in zip(credit(frozen_pass()), credit(frozen_pass(torch.float64)), strict=True):
                torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-4)

    def test_projections_are_linear_in_the_error_and_drawn_once(self):
        seen, draws = frozen_pass(), generator(1, "any")
        one, two = known_credits.projected_error(draws), known_credits.projected_error(draws)
        doubled = replace(seen, error=2 * seen.error)
        torch.testing.assert_close(one(doubled)[1], 2 * one(seen)[1])
        assert not torch.allclose(one(seen)[1], two(seen)[1])

    def test_other_samples_and_the_wrong_sign(self):
        seen = frozen_pass()
        assert torch.equal(known_credits.of_another_sample(seen)[2][5], seen.reference[2][4])
        assert torch.equal(known_credits.against_gradient(seen)[2], -seen.reference[2])


def test_diagnose_sees_what_is_planted(task):
    stored = own_results(task, [1])
    assert stored["methods"].keys() == ALIGNED.keys()
    found = {name: SeedResult.from_json(results[0]).alignment for name, results in stored["methods"].items()}
    assert found["gradient turned to cosine 0.5"].cosine == pytest.approx(0.5, abs=1e-4)
    assert found["gradient with the wrong sign"].cosine == pytest.approx(-1, abs=1e-4)
    assert found["noise in block 0, cosine 0.5 elsewhere"].failing_blocks == (0,)
    assert found[OWN_DEPTH_METHODS[0]].all_exact
    assert found[OWN_DEPTH_METHODS[2]].noise
    assert SeedResult.from_json(stored["methods"]["own loop: constant predictions"][0]).broken
    assert len(found["feedback drawn after training"].scores) == 2


class TestRates:
    @pytest.mark.parametrize(
        ("margin", "truth"), [(12, True), (3, True), (2.9, None), (2, None), (1.1, None), (1, False), (-8, False)]
    )
    def test_depth_is_known_at_least_a_point_away_from_the_line(self, margin, truth):
        assert method([margin] * 4).truth("depth") is truth

    def test_a_headline_is_true_where_both_claims_are(self):
        assert method([12] * 3).truth("headline") is True
        assert method([12] * 3, aligned=False).truth("headline") is False
        assert method([12] * 3, aligned=None).truth("headline") is None
        assert method([-9] * 3, aligned=None).truth("headline") is False
        assert method([12] * 3, has_own_depth=False).truth("depth") is None
        assert {method([12] * 3, two_modes=True).truth(claim) for claim in ("depth", "alignment", "headline")} == {None}

    def test_groups_are_disjoint_and_a_rest_is_left_out(self):
        found = method([12, 12, 12, -9, -9, -9, -9, -9])
        assert found.answers("depth", 1) == ["passes"] * 3 + ["walked back"] * 5
        assert len(found.groups(3)) == 2
        assert len(found.groups(5)) == 1

    def test_rates_count_groups_of_the_methods_of_that_truth(self):
        good = method([12.0, 12.1, 12.2, 12.3, -9.0, 11])
        bad = method([12.0, 11.9, 12.1], aligned=False)
        absent = method([12.0, 11.9, 12.1], aligned=False, alignment=ABSENT)
        found = [good, bad, absent]
        assert rate(found, "depth", 1, truth=True, answer="walked back") == Rate(1, 12)
        assert rate(found, "alignment", 1, truth=False, answer="passes") == Rate(3, 6)
        assert rate(found, "alignment", 3, truth=False, answer="passes") == Rate(1, 2)
        assert rate(found, "headline", 1, truth=False, answer="passes") == Rate(3, 6)
        assert rate(found, "depth", 1, truth=False, answer="passes").text == "–"

    def test_a_rate_has_an_exact_interval(self):
        assert Rate(0, 40).text == "0 of 40: 0.0% [0.0, 8.8]"
        low, high = exact_interval(3, 20)
        assert (low, high) == pytest.approx((0.03207, 0.37893), abs=1e-5)
        assert exact_interval(20, 20)[1] == 1
        assert [Rate(hits, 100).is_below(0.05) for hits in (0, 4, 20)] == [True, None, False]

    def test_intervals_are_compared_with_the_margin_over_all_seeds(self):
        assert method([10, 10.1, 10.2] * 2).holding(3) == (2, 2)
        assert method([10, 10.1, 9.9, 20, 20.1, 19.9]).holding(3) == (0, 2)

    def test_two_modes_are_mixed_seed_by_seed(self):
        good, bad = method([12] * 200), method([-9] * 200)
        found = mixed(good, bad, "both", 0.2, np.random.default_rng(0))
        margins = [seed.margin for seed in found.seeds]
        assert set(np.round(margins, 6)) == {12, -9}
        assert 0.1 < sum(margin < 0 for margin in margins) / 200 < 0.3
        assert found.two_modes


def planted(tmp_path, changed=None):
    """A report from made-up results: every method is judged rightly, except those in `changed`."""
    size = calibration._SIZES["smoke"]
    good, wrong = {}, changed or {}
    for name in ("BP", "KP", "FA", "DFA", *ALIGNED):
        depth_fails = name in OWN_DEPTH_METHODS[1:]
        alignment = AlignmentFacts(all_exact=True) if ALIGNED.get(name, True) else ABSENT
        good[name] = ([-9.0 + seed / 10 if depth_fails else 12.0 + seed / 10 for seed in range(6)], alignment)
    for experiment in calibration.STUDY.experiments(SMOKE):
        if experiment.name == "coverage":
            result = experiment.perform(TrainOptions(out=tmp_path))
        else:
            names = (
                list(ALIGNED) if experiment.name.startswith("own") else [name for name in good if name not in ALIGNED]
            )
            found = {name: seeds(*(good | wrong)[name]) for name in names}
            methods = {name: [seed.to_json() for seed in each] for name, each in found.items()}
            result = {"majority_share": 0.1, "methods": methods}
        experiment.store(tmp_path / "calibration", result, {})
    assert size.seeds == tuple(range(1, 7))
    results = Results(tmp_path / "runs", study_folder=tmp_path / "calibration")
    return calibration.STUDY.report_results(results, SMOKE)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    small = replace(calibration._SIZES["smoke"], draws=60)
    monkeypatch.setitem(calibration._SIZES, "smoke", small)


class TestReport:
    def test_a_judge_that_is_never_wrong(self, tmp_path):
        report = planted(tmp_path)
        rates = cells(report, "rates", "true, walked back")
        assert rates["depth, 1 seed"] == "0 of 30: 0.0% [0.0, 11.6]"
        assert cells(report, "rates", "false, passes")["alignment, 5 seeds"] == "0 of 8: 0.0% [0.0, 36.9]"
        depth = cells(report, "depth", "3 seeds")
        assert depth["KP (prototypes)"] == "2 / 0 / 0"
        assert depth["own loop: blocks reset after training (prototypes)"] == "0 / 2 / 0"
        assert cells(report, "depth", "depth")["KP (prototypes)"] == "true"
        assert "gradient with the wrong sign (prototypes)" not in depth
        assert cells(report, "alignment", "aligned")["KP (prototypes)"] == "not counted"
        assert report.runs == ()

    def test_errors_are_counted(self, tmp_path):
        wrong = {
            "another sample's gradient": ([12.0] * 6, STANDS),
            "gradient with the wrong sign": ([12.0] * 6, STANDS),
            "BP": ([12.0 + seed / 10 for seed in range(6)], replace(STANDS, failing_updates=(1,))),
            "KP": ([12.0, 12.1, 12.2, 12.3, 12.4, -9.0], STANDS),
        }
        report = planted(tmp_path, wrong)
        assert cells(report, "rates", "false, passes")["alignment, 1 seed"].startswith("12 of ")
        assert cells(report, "rates", "false, passes")["headline, 3 seeds"].startswith("4 of ")
        assert cells(report, "rates", "true, walked back")["alignment, 1 seed"].startswith("6 of ")
        assert cells(report, "rates", "true, walked back")["depth, 1 seed"].startswith("1 of ")
        assert cells(report, "alignment", "decided by, 1 seed")["BP (prototypes)"] == "update 6"
        assert holds(report, "alignment-false-rarely-passes") is False
        assert holds(report, "depth-false-rarely-passes") is not False

    def test_coverage_is_reported_by_interval(self, tmp_path):
        report = planted(tmp_path)
        summary = cells(report, "coverage-summary", "settings")
        assert summary["t, paired seeds"] == summary["t, paired seeds, assumptions fail"] == "3"
        assert (
            cells(report, "coverage-summary", "as required")["t, paired seeds, assumptions fail"] == "nothing required"
        )
        assert holds(report, "intervals-cover-two-modes") is False
        assert holds(report, "intervals-cover") is not False


@pytest.mark.slow
def test_the_study_runs_at_smoke_scale(smoke):
    report = smoke("calibration")
    assert {cell[0].text for cell in report.tables[0].rows} >= {"depth, 1 seed", "headline, 5 seeds"}
