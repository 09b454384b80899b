"""Someone's card against their run: an untouched one is confirmed, any other is refuted by the name of what differs."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil

import pytest
import safetensors.numpy
import torch
from fake_measurements import ALL
from hypothesis import given, settings
from hypothesis import strategies as st

import walkback as wb
from walkback.auditing.diagnose_runs import diagnose_runs
from walkback.auditing.measure_run import RunMeasurer
from walkback.auditing.verify import verify_card
from walkback.cli.main import main
from walkback.core.content_hash import with_hash
from walkback.core.errors import InputError
from walkback.judge.card import card_hash, read_card, seal
from walkback.judge.compare import COMPARED_KEYS, card_leaves, card_tolerance, compare_cards
from walkback.judge.evidence import Evidence
from walkback.judge.options import JudgeOptions
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.formats import render
from walkback.runs.train_runs import ProgressListener

SIZES = {"arch": "resmlp:d=8,depth=2", "data": "prototypes:train=256,test=512", "epochs": 2}
SEEDS = Evidence.of([0.61, 0.62, 0.60], {"method_shell": [0.35, 0.35, 0.34], "bp_shell": 0.42}, [0.6, 0.6, 0.6])


def diagnosed(path, **judge_options):
    measurer = RunMeasurer(None, torch.device("cpu"))
    (report,) = diagnose_runs([path], JudgeOptions(**judge_options), measurer, ProgressListener())
    return report


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The run of a DFA network among its baselines, with its card; not to be changed."""
    out = tmp_path_factory.mktemp("runs")
    results = wb.train(["dfa", "dfa:shell=method", "bp"], seeds=[1, 2], out=out, **SIZES)
    (result,) = [result for result in results if (result.method, result.seed) == ("dfa", 1)]
    diagnosed(out / result.run)
    return out / result.run


@pytest.fixture
def runs(made, tmp_path):
    """A copy of all the runs, to be changed."""
    shutil.copytree(made.parent, tmp_path / "runs")
    return tmp_path / "runs" / made.name


def test_a_rule_without_state_and_a_shell_are_confirmed_too(runs):
    for path in (*runs.parent.glob("bp_*_s1_*"), *runs.parent.glob("dfa-shell*_s1_*")):
        diagnosed(path)
        found = verify_card(path, path)
        assert found.confirmed, str(found)


def load(run):
    return json.loads((run / "report.json").read_text())


def forge(run, change, resealed=True):
    """Change a card by hand; whoever knows how also gives it a fitting hash."""
    card = load(run)
    change(card)
    (run / "report.json").write_text(json.dumps(seal(card) if resealed else card))


def put(*path, value):
    """A change of one place; `value` may be a function of what is there. Checks go by their id."""

    def change(card):
        place = card
        for key in path[:-1]:
            place = {check["id"]: check for check in place}[key] if place is card["checks"] else place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value

    return change


def named(found):
    return [check.what for check in found.differences]


def test_an_untouched_card_is_confirmed_and_nothing_is_written(made, capsys):
    before = {path: path.read_bytes() for path in sorted(made.parent.rglob("*")) if path.is_file()}
    assert main(["verify", str(made / "report.json"), str(made), "--device", "cpu"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "VERIFY: confirmed"
    assert not any("DIFFERS" in line or "NOT CHECKED" in line for line in out)
    assert {path: path.read_bytes() for path in sorted(made.parent.rglob("*")) if path.is_file()} == before


@pytest.mark.parametrize(
    "judge_options",
    [
        {"protocol": "four", "null": "bp_shell"},
        {"thresholds": DiagnosticThresholds(h_norm_explosion_ratio=1.01, null_z=1.0)},
    ],
)
def test_a_card_is_judged_again_as_it_was_judged(runs, judge_options):
    diagnosed(runs, **judge_options)
    found = verify_card(runs, runs)
    assert found.confirmed, str(found)
    told = any(note.startswith("The threshold null_z is 1, not 3") for note in found.notes)
    assert told == ("thresholds" in judge_options)


@pytest.mark.parametrize("resealed", [False, True])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        (put("layers", 1, "hidden_norm", "value", value=lambda x: 1.01 * x), "layers[1].hidden_norm.value"),
        (put("layers", 0, "credit", "cos", "value", value=lambda x: x + 0.01), "layers[0].credit.cos.value"),
        (put("layers", 2, "grad_norm_128", "status", value="missing"), "layers[2].grad_norm_128.status"),
        (put("claim", "headline_acc", 0, value=0.9), "claim.headline_acc[0]"),
        (put("claim", "headline_acc", 1, value=lambda x: x + 1 / 512), "claim.headline_acc[1]"),
        (put("claim", "frozen", "method_shell", 1, value=0.01), "claim.frozen.method_shell[1]"),
        (put("claim", "bp_acc", value=[]), "claim.bp_acc"),
        (put("claim", "method", value="dfa:scale=unit_error"), "claim.method"),
        (put("checks", "D1", "value", value=lambda x: 2 * x), "checks.D1.value"),
        (put("checks", "D1", "threshold", value=60.0), "checks.D1.threshold"),
        (put("checks", "D3", "value", value=lambda x: x + 3), "checks.D3.value"),
        (put("thresholds", "h_norm_explosion_ratio", value=60.0), "checks.D1.threshold"),
        (put("thresholds", "g_norm_floor", value=-1.0), "thresholds"),
        (put("verdict", value="trustworthy"), "verdict"),
        (put("sentence", value="trustworthy"), "sentence"),
        (put("claims", "depth", "outcome", value="stands"), "claims.depth.outcome"),
        (put("statistics", "sd", value=0.0), "statistics.sd"),
        (put("limits", value=["None."]), "limits"),
        (put("modes", value=[{"id": "1a", "name": "scale growth", "reason": "invented"}]), "modes"),
        (put("claim", "digest", value="ab" * 32), "data hash"),
        (put("measured", "sample_hash", value="ab" * 32), "measured.sample_hash"),
        (put("provenance", "config", "lr", value=0.5), "config"),
        (put("provenance", "config_digest", value="ab" * 32), "config digest"),
        (put("provenance", "files", "model.safetensors", value="ab" * 32), "checkpoint model.safetensors"),
    ],
)
def test_what_was_changed_by_hand_is_named(runs, change, what, resealed):
    before = load(runs)
    forge(runs, change, resealed)
    assert load(runs) != before
    found = verify_card(runs / "report.json", runs)
    assert found.outcome == "refuted"
    assert what in named(found), str(found)
    assert ("card hash" in named(found)) == (not resealed)
    assert what in found.line


def test_a_changed_card_is_read_by_nobody_else(runs, capsys):
    forge(runs, put("checks", "D1", "value", value=3.0), resealed=False)
    with pytest.raises(InputError, match="was changed after it was written"):
        read_card(runs / "report.json")
    assert main(["render", str(runs)]) == 3
    assert "was changed after it was written" in capsys.readouterr().err
    with pytest.raises(InputError, match="was changed after it was written"):
        render(load(runs), "html")


def test_a_change_of_what_cannot_be_measured_again_still_breaks_the_hash(runs):
    forge(runs, put("provenance", "measured_on", value="a better machine"), resealed=False)
    assert named(verify_card(runs, runs)) == ["card hash"]


def change_model(run, known_to=()):
    """Other weights, and the hashes that speak of them put right in the record or the card."""
    path = run / "model.safetensors"
    arrays = {name: array * 1.01 for name, array in safetensors.numpy.load_file(path).items()}
    path.write_bytes(safetensors.numpy.save(arrays))
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    if "record" in known_to:
        record = json.loads((run / "run.json").read_text())
        record["files"]["model.safetensors"] = sha
        (run / "run.json").write_text(json.dumps(with_hash(record)))
    if "card" in known_to:
        forge(run, put("provenance", "files", "model.safetensors", value=sha))


@pytest.mark.parametrize("known_to", [(), ("record",)])
def test_another_checkpoint_is_named(runs, known_to):
    change_model(runs, known_to)
    assert named(verify_card(runs, runs)) == ["checkpoint model.safetensors"]


def test_a_checkpoint_forged_everywhere_is_betrayed_by_its_numbers(runs):
    change_model(runs, ("record", "card"))
    found = verify_card(runs, runs)
    assert "layers[0].hidden_norm.value" in named(found)
    assert not any(what.startswith(("card", "checkpoint")) for what in named(found))


@pytest.mark.parametrize("damage", ["remove", "replace"])
def test_a_missing_or_foreign_feedback_is_named(runs, damage, capsys):
    if damage == "remove":
        (runs / "rule.safetensors").unlink()
    else:
        shutil.copy(runs / "model.safetensors", runs / "rule.safetensors")
    assert main(["verify", str(runs / "report.json"), str(runs)]) == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("VERIFY: refuted: checkpoint rule.safetensors (the card has '")
    assert ("no such file" in first) == (damage == "remove")


def test_a_card_that_says_its_feedback_was_missing_is_right(runs):
    (runs / "rule.safetensors").unlink()
    diagnosed(runs)
    found = verify_card(runs, runs)
    assert found.confirmed, str(found)


def test_an_accuracy_forged_in_card_and_record_is_betrayed_by_the_weights(runs):
    record = json.loads((runs / "run.json").read_text())
    record["result"]["test_acc"] = 0.9
    (runs / "run.json").write_text(json.dumps(with_hash(record)))
    diagnosed(runs)
    assert load(runs)["claim"]["headline_acc"][0] == 0.9
    assert named(verify_card(runs, runs)) == ["test accuracy"]


class TestBundleAlone:
    """Its baselines are elsewhere."""

    @pytest.fixture
    def alone(self, runs, tmp_path):
        return shutil.copytree(runs, tmp_path / "alone" / "bundle")

    def test_the_cards_baselines_are_taken_and_that_is_said(self, alone):
        found = verify_card(alone, alone)
        assert found.confirmed, str(found)
        (check,) = [check for check in found.checks if check.status == "not_checked"]
        assert "not re-checked: baseline runs are not beside the bundle" in check.detail
        assert found.line == "VERIFY: confirmed (not re-checked: other accuracies)"

    def test_this_runs_own_accuracy_is_still_checked(self, alone):
        forge(alone, put("claim", "headline_acc", 0, value=0.9))
        assert "claim.headline_acc" in named(verify_card(alone, alone))

    def test_and_so_is_what_follows_from_the_cards_own_numbers(self, alone):
        forge(alone, put("claim", "frozen", "method_shell", 0, value=0.9))
        assert "checks.D3.value" in named(verify_card(alone, alone))

    def test_a_baseline_that_did_come_along_is_checked(self, made, alone):
        """One seed's shell beside it, the other's not."""
        own, shell = (made.parent / name for name in (made.name, shell_of(made, 1)))
        for path in (own, shell):
            shutil.copytree(path, alone.parent / path.name)
        run = alone.parent / own.name
        assert verify_card(run, run).confirmed
        forge(run, put("claim", "frozen", "method_shell", 0, value=lambda x: x - 0.05))
        assert "claim: frozen.method_shell, headline_acc" in named(verify_card(run, run))

    def test_an_interval_over_samples_needs_the_baseline(self, made, tmp_path):
        for name in (made.name, shell_of(made, 1)):
            shutil.copytree(made.parent / name, tmp_path / "pair" / name)
        run = tmp_path / "pair" / made.name
        diagnosed(run)
        assert load(run)["statistics"]["counts"] == "samples"
        assert verify_card(run, run).confirmed
        shutil.rmtree(tmp_path / "pair" / shell_of(made, 1))
        found = verify_card(run, run)
        assert found.confirmed, str(found)
        assert "statistics" in [check.what for check in found.checks if check.status == "not_checked"]


def shell_of(made, seed):
    (path,) = made.parent.glob(f"dfa-shell=method*_s{seed}_*")
    return path.name


def test_a_seed_left_out_of_the_card_is_named(runs):
    """Trained, finished, beside the others, and not spoken of."""
    card = load(runs)
    claim = card["claim"]
    accuracies = {name: values[:1] for name, values in claim["frozen"].items()}
    forge(runs, lambda card: card["claim"].update(headline_acc=claim["headline_acc"][:1], frozen=accuracies))
    assert {"claim.headline_acc", "claim.frozen.method_shell"} <= set(named(verify_card(runs, runs)))


def test_what_cannot_be_measured_is_neither_confirmed_nor_refuted(runs, capsys):
    record = json.loads((runs / "run.json").read_text())
    record["config"]["lr"] = 0.5
    (runs / "run.json").write_text(json.dumps(with_hash(record)))
    assert main(["verify", str(runs), str(runs), "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "not_measured"
    assert not found["confirmed"]
    assert "its configuration does not have the hash that was recorded" in found["unmeasured"]
    assert verify_card(runs, runs).line.startswith("VERIFY: could not measure: ")


def test_json_says_the_same(runs, capsys):
    forge(runs, put("checks", "D1", "value", value=3.0))
    assert main(["verify", str(runs), str(runs), "--json", "--device", "cpu"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found == verify_card(runs, runs).to_json()
    assert [check["what"] for check in found["checks"] if check["status"] == "differs"] == ["checks.D1.value"]


@pytest.mark.parametrize(
    ("card", "bundle", "said"),
    [
        ("none.json", "run", "Could not read"),
        ("run/run.json", "run", "has the format 1|lacks the key"),
        ("run/report.json", "none", "There is no run at"),
        ("run/report.json", ".", "There is no run at"),
        ("foreign/report.json", "run", "does not say which stored run"),
    ],
)
def test_mistakes_get_a_sentence(made, tmp_path, capsys, card, bundle, said):
    shutil.copytree(made, tmp_path / "run")
    judge(ALL["healthy"](), SEEDS).save(tmp_path / "foreign")
    assert main(["verify", str(tmp_path / card), str(tmp_path / bundle)]) == 3
    err = capsys.readouterr().err
    assert any(part in err for part in said.split("|")), err
    assert "Traceback" not in err


CARDS = {name: judge(make(), SEEDS, method_name="DFA").to_json() for name, make in ALL.items()}


def number_leaves(card):
    return [
        (path, value)
        for path, value in card_leaves(card)
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]  # fmt: skip


def replaced(card, path, value):
    changed = copy.deepcopy(card)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def allowed(card, path):
    """The tolerance of a number, from the names on the way to it; a check goes by its id."""
    names = [card["checks"][key]["id"] if path[0] == "checks" and i == 1 else key for i, key in enumerate(path)]
    return card_tolerance([name for name in names if isinstance(name, str)])


def test_tolerances_are_finer_than_what_is_printed():
    """A cosine is printed with three digits; of 1024 samples, two may be so close to a limit that rounding decides."""
    cosine, share = card_tolerance(["layers", "credit", "cos"]), card_tolerance(["clamp", "share"])
    assert cosine.agree(0.0, 0.00009)
    assert not cosine.agree(0.020, 0.021)
    assert not cosine.agree(0.900, 0.902)
    assert share.agree(0.5, 0.5 + 2 / 1024)
    assert not share.agree(0.5, 0.5 + 3 / 1024)


@settings(max_examples=120, deadline=None)
@given(data=st.data(), factor=st.floats(1.01, 1e6), sign=st.sampled_from([-1, 1]))
def test_any_number_moved_by_more_than_its_tolerance_is_found(data, factor, sign):
    card = CARDS[data.draw(st.sampled_from(sorted(CARDS)))]
    path, value = data.draw(st.sampled_from(number_leaves(card)))
    allow = allowed(card, path)
    if isinstance(value, int):
        moved = value + sign
    else:
        # Relative to the larger of the two numbers, so a little more is needed than of the first alone.
        moved = value + sign * factor * max(allow.absolute, allow.relative * abs(value) * (1 + 2 * allow.relative))
    (found,) = compare_cards(replaced(card, path, moved), card)
    assert (found.card, found.found) == (moved, value)
    assert found.section == path[0]


@settings(max_examples=120, deadline=None)
@given(data=st.data(), share=st.floats(-0.99, 0.99))
def test_any_number_moved_by_less_is_confirmed(data, share):
    card = CARDS[data.draw(st.sampled_from(sorted(CARDS)))]
    path, value = data.draw(st.sampled_from([leaf for leaf in number_leaves(card) if isinstance(leaf[1], float)]))
    allow = allowed(card, path)
    moved = value + share * max(allow.absolute, allow.relative * abs(value))
    assert compare_cards(replaced(card, path, moved), card) == []


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_any_text_or_status_changed_is_found(data):
    card = CARDS[data.draw(st.sampled_from(sorted(CARDS)))]
    texts = [(path, value) for path, value in card_leaves(card) if isinstance(value, str | bool | None)]
    path, value = data.draw(st.sampled_from(texts))
    other = data.draw(st.sampled_from([None, "other", f"{value} indeed", 0.5, not value]))
    if type(other) is type(value) and other == value:
        return
    assert len(compare_cards(replaced(card, path, other), card)) == 1


def test_everything_measured_is_compared():
    """Only what says where a card was made is left out, and what repeats other keys under other thresholds."""
    card = CARDS["fresh"]
    assert card.keys() - {str(path[0]) for path, _ in card_leaves(card)} <= {
        "format", "walkback", "provenance", "rerun", "hash", "modes", "rejudging",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("card", "found", "same"),
    [
        ("growth = 12.34, above 50", "growth = 12.35, above 50", True),
        ("growth = 12.34, above 50", "growth = 12.44, above 50", True),
        ("growth = 12.34, above 50", "growth = 13.34, above 50", False),
        ("growth = 12.34, above 50", "growth = 12.34, above 60", False),
        ("growth = 12.34, above 50", "growth = 12.34, not above 50", False),
        ("z = 0.0", "z = -0.0", True),
        ("z = 0.1", "z = -0.1", False),
        ("|g_4| = 5e+08", "|g_4| = 5.01e+08", True),
        ("|g_4| = 5e+08", "|g_4| = 6e+08", False),
        ("|g_4| = 5e+08", "|g_3| = 5e+08", False),
        ("3 of 1024 samples", "4 of 1024 samples", False),
        ("hash 5a3e7", "hash 5a3e8", False),
    ],
)
def test_numbers_in_a_sentence_may_be_rounded_the_other_way(card, found, same):
    assert (compare_cards({"reason": card}, {"reason": found}) == []) == same


def test_the_hash_is_of_the_content_not_of_its_layout():
    card = CARDS["healthy"]
    assert card["hash"] == card_hash(card) == card_hash(dict(reversed(card.items())))
    assert json.loads(json.dumps(card, indent=4)) == card
    assert seal(card) == card
    assert card_hash(card | {"verdict": "x"}) != card["hash"]
    assert card_hash(card | {"hash": "x"}) == card["hash"]
    assert len(card["hash"]) == 64
    assert COMPARED_KEYS.agree(1.0, 1.0 + 1e-12)
    assert not COMPARED_KEYS.agree(1.0, 1.0 + 1e-6)
