"""Audits of a user's own training function, end to end: pages, cards, verification, resuming, executors, commands."""

from __future__ import annotations

import importlib
import json
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

import walkback as wb
from walkback.auditing.own_loop.measure_plan import MeasurePlan
from walkback.core.content_hash import SHA256, with_hash
from walkback.core.errors import InputError
from walkback.judge.card import seal
from walkback.runs import store
from walkback.runs.train_runs import ProgressListener

PROJECT = Path(__file__).parents[1] / "unit" / "own_loop_project.py"


sys.path.append(str(PROJECT.parent))
project = importlib.import_module("own_loop_project")
DESCRIBED = {"data": "argmax of a linear map", "recipe": "SGD 0.05, 2 epochs"}
ASKED = {
    "methods": ["mine", "bp"],
    "seeds": [0, 1],
    "eval_batches": project.test_batches,
    "credit": project.my_credit,
    "build": project.Net,
    "describe": DESCRIBED,
    "device": "cpu",
}


class Recorder(ProgressListener):
    def __init__(self):
        self.trained, self.finished = [], []

    def job_ended(self, name, done, total):
        self.trained.append(name)

    def skipped(self, names):
        self.finished += names


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    out = tmp_path_factory.mktemp("own") / "audit"
    return wb.audit(project.train, oracle=True, out=out, **ASKED)


def card_of(audited, name):
    return json.loads((audited.out / name / "report.json").read_text())


def weights(audited, name):
    return store.open_run(audited.out / name).params()


class TestAudit:
    def test_every_job_is_trained_once(self, audited):
        names = [result.run for result in audited.results]
        assert len(names) == len(set(names)) == 2 * 6
        assert all(result.status == "done" and result.epochs == project.EPOCHS for result in audited.results)

    def test_rows_claims_and_pages_are_those_of_other_audits(self, audited):
        rows = {row.method: row for row in audited.table.rows}
        assert list(rows) == ["mine", "bp"]
        assert rows["mine"].claims["alignment"].outcome != "not_made"
        assert rows["mine"].claims["credit"].outcome != "not_made"
        for form in ("html", "md", "tex", "json"):
            assert (audited.out / f"audit.{form}").is_file()
            assert (audited.out / "mine-s1" / f"report.{form}").is_file()
        assert "mine" in str(audited)
        assert DESCRIBED["recipe"] in audited.full_text

    def test_the_accuracies_are_those_of_the_jobs(self, audited):
        claim = card_of(audited, "mine-s0")["claim"]

        def accuracy(name):
            return store.open_run(audited.out / name).record["result"]["test_acc"]

        assert claim["headline_acc"] == [accuracy("mine-s0"), accuracy("mine-s1")]
        assert claim["frozen"]["method_shell"] == [accuracy("mine-frozen-s0"), accuracy("mine-frozen-s1")]
        assert claim["frozen"]["bp_shell"] == [accuracy("bp-frozen-s0"), accuracy("bp-frozen-s1")]
        assert claim["bp_acc"] == [accuracy("bp-s0"), accuracy("bp-s1")]
        assert claim["oracles"]["exact"]["acc"] == [accuracy("mine-exact-s0"), accuracy("mine-exact-s1")]
        assert (claim["seeds"], claim["test_samples"]) == ([0, 1], 256)

    def test_exact_credit_trains_as_backprop_does(self, audited):
        """The project's oracle is backprop, so every bit agrees."""
        exact, bp = weights(audited, "mine-exact-s1"), weights(audited, "bp-s1")
        assert all(np.array_equal(exact[name], bp[name]) for name in bp)

    def test_frozen_baselines_have_the_first_blocks_and_another_stem(self, audited):
        torch.manual_seed(1)
        first = project.Net().state_dict()
        for name in ("mine-frozen-s1", "bp-frozen-s1", "mine-exact-frozen-s1"):
            last = weights(audited, name)
            same = {key: np.array_equal(value.numpy(), last[key]) for key, value in first.items()}
            assert all(is_same == key.startswith("stages") for key, is_same in same.items())

    def test_the_credit_uses_the_feedback_of_the_job(self, audited):
        for seed in (0, 1):
            run = store.open_run(audited.out / f"mine-s{seed}")
            stored = [run.rule_state()[str(index)] for index in range(4)]
            assert all(
                np.array_equal(own.numpy(), kept) for own, kept in zip(project.draw_feedback(seed), stored, strict=True)
            )
            ((x, y),) = project.test_batches()
            net = project.Net().double()
            net.load_state_dict({name: torch.from_numpy(value).double() for name, value in run.params().items()})
            x, states = x.double(), []
            states.append(net.stem(x))
            for block in net.stages:
                states.append(states[-1] + block(states[-1]))
            logits = net.head(states[-1])
            true = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, y, reduction="sum"), states)
            error = logits.detach().softmax(1) - torch.nn.functional.one_hot(y, 4)
            layers = card_of(audited, f"mine-s{seed}")["layers"]
            for layer, g, feedback in zip(layers, true, project.draw_feedback(seed), strict=True):
                cosine = torch.cosine_similarity(error @ feedback.double(), g, dim=1, eps=1e-300).mean()
                assert layer["credit"]["cos"]["value"] == pytest.approx(float(cosine), abs=1e-6)

    def test_no_answer_is_missing_that_the_tool_could_know(self, audited):
        card = card_of(audited, "mine-s0")
        assert not [item for item in card["checklist"] if "[TODO]" in item["answer"]]
        assert "[TODO]" not in json.dumps(card["claim"])
        assert card["provenance"]["own_loop"]["sources"]["own_loop_project.py"]
        assert str(audited.out.parent) not in json.dumps(card["provenance"])

    def test_a_second_run_trains_nothing_and_judges_the_same(self, audited):
        before = {path: path.stat().st_mtime_ns for path in audited.out.glob("*/run.json")}
        heard = Recorder()
        again = wb.audit(project.train, oracle=True, out=audited.out, resume=True, listener=heard, **ASKED)
        assert heard.trained == []
        assert len(heard.finished) == len(before) == 12
        assert {path: path.stat().st_mtime_ns for path in audited.out.glob("*/run.json")} == before
        assert again.table.to_json() == audited.table.to_json()

    def test_without_resume_a_used_folder_is_refused(self, audited):
        with pytest.raises(InputError, match="resume"):
            wb.audit(project.train, out=audited.out, **ASKED)

    def test_another_training_in_the_folder_is_refused(self, audited):
        with pytest.raises(InputError, match="mine-s0 holds another training"):
            wb.audit(project.never, out=audited.out, resume=True, **ASKED)

    def test_with_no_time_left_nothing_is_judged(self, tmp_path):
        stopped = wb.audit(project.train, out=tmp_path, max_seconds=0.0, **ASKED)
        assert stopped.table is None
        assert {result.status for result in stopped.results} == {"unfinished"}


@pytest.mark.slow
def test_depth_is_judged_by_losses_in_nats(tmp_path):
    def train(job):
        trained = project.train(job)
        loss = 0.7 + 0.01 * job.seed + 0.5 * job.frozen
        return wb.Trained(trained.model, loss=loss, feedback=trained.feedback)

    given = {**ASKED, "methods": ["mine"], "seeds": [0, 1]}
    audited = wb.audit(train, out=tmp_path / "a", train_batches=iter(project.train_batches()), **given)
    (row,) = audited.table.rows
    assert row.claims["depth"].outcome == "stands"
    assert "+0.500 nats" in row.claims["depth"].reason
    assert row.cards[0]["claim"]["losses"]["frozen"]["method_shell"] == pytest.approx([1.2, 1.21])
    assert "blocks add +0.500 nats" in str(audited)
    assert {result.test_acc for result in audited.results} == {None}
    assert wb.verify(tmp_path / "a" / "mine-s0", tmp_path / "a" / "mine-s0").outcome == "confirmed"


@pytest.mark.slow
def test_plain_options_are_stored_for_verification(tmp_path):
    given = {**ASKED, "methods": ["mine"], "seeds": [0]}
    options = {"exact": [3], "null_space": "all", "pool": "all", "blocks": "stages", "initial": project.Net()}
    audited = wb.audit(project.train, out=tmp_path, train_batches=project.train_batches(), **options, **given)
    card = card_of(audited, "mine-s0")
    assert card["layers"][3]["credit"]["label"] == "exact"
    assert card["blocks"][0]["accuracy_reset"]["status"] == card["blocks"][0]["probe"]["status"] == "ok"
    found = wb.verify(tmp_path / "mine-s0", tmp_path / "mine-s0")
    assert found.outcome == "confirmed", str(found)


@pytest.mark.slow
def test_feedback_that_was_not_returned_is_named(tmp_path):
    def train(job):
        asked.append(job)
        return wb.Trained(project.train(job).model, accuracy=0.5)

    asked = []
    with pytest.raises(InputError, match=r"'mine' takes the feedback.*feedback="):
        wb.audit(train, out=tmp_path / "a", **{**ASKED, "seeds": [0]})
    assert len(asked) == 1


class TestVerify:
    def test_the_card_is_confirmed(self, audited):
        found = wb.verify(audited.out / "mine-s0", audited.out / "mine-s0")
        assert found.outcome == "confirmed", str(found)
        by_name = {check.what: check.status for check in found.checks}
        assert by_name["layers"] == by_name["blocks"] == by_name["claim"] == by_name["sources"] == "ok"
        assert by_name["test accuracy of the weights"] == "not_checked"

    @pytest.mark.parametrize(
        ("file", "named"), [("model.safetensors", "checkpoint model"), ("rule.safetensors", "checkpoint rule")]
    )
    def test_changed_files_are_named(self, file, named, audited, tmp_path):
        copy = copied(audited.out, tmp_path)
        data = bytearray((copy / "mine-s0" / file).read_bytes())
        data[-1] ^= 1
        (copy / "mine-s0" / file).write_bytes(bytes(data))
        found = wb.verify(copy / "mine-s0", copy / "mine-s0")
        assert found.outcome == "refuted"
        assert any(check.what.startswith(named) for check in found.differences)

    def test_other_samples_cannot_be_measured_with(self, audited, tmp_path):
        copy = copied(audited.out, tmp_path)
        data = bytearray((copy / "samples.safetensors").read_bytes())
        data[-1] ^= 1
        (copy / "samples.safetensors").write_bytes(bytes(data))
        found = wb.verify(copy / "mine-s0", copy / "mine-s0")
        assert found.outcome == "refuted"
        assert [check.what for check in found.differences] == ["samples.safetensors"]

    def test_samples_that_were_written_anew_are_betrayed_by_their_hash_and_the_numbers(self, audited, tmp_path):
        copy = copied(audited.out, tmp_path)
        ((x, y),) = project.test_batches()
        x[0] += 1
        plan = MeasurePlan.of(project.Net, [(x, y)], None, {"credit": project.my_credit}, ["mine"])
        plan.save(copy, {"train": project.train}, DESCRIBED)
        found = wb.verify(copy / "mine-s0", copy / "mine-s0")
        assert {"claim.digest", "layers"} <= {check.what.partition("[")[0] for check in found.differences}

    def test_a_changed_accuracy_is_named(self, audited, tmp_path):
        copy = copied(audited.out, tmp_path)
        card = card_of(audited, "mine-s0")
        card["claim"]["headline_acc"][0] += 0.1
        (tmp_path / "report.json").write_text(json.dumps(seal({k: v for k, v in card.items() if k != "hash"})))
        found = wb.verify(tmp_path, audited.out / "mine-s0")
        assert "claim.headline_acc" in {check.what.partition("[")[0] for check in found.differences}
        run = store.open_run(copy / "mine-s0")
        run.change_record({"result": {**run.record["result"], "test_acc": 0.99}})
        found = wb.verify(audited.out / "mine-s0", copy / "mine-s0")
        assert "test accuracy of correct.safetensors" in {check.what for check in found.differences}

    def test_a_changed_source_of_build_is_named(self, audited, tmp_path):
        copy, source = copied(audited.out, tmp_path), tmp_path / PROJECT.name
        source.write_text(PROJECT.read_text() + "\n# changed\n")
        document = json.loads((copy / "loop.json").read_text())
        document["functions"]["build"]["file"] = document["functions"]["train"]["file"] = str(source)
        document = with_hash({key: each for key, each in document.items() if key != SHA256})
        (copy / "loop.json").write_text(json.dumps(document))
        found = wb.verify(copy / "mine-s0", copy / "mine-s0")
        assert [check.what for check in found.differences] == [f"source {PROJECT.name}"]

    def test_a_card_of_other_numbers_is_refuted(self, audited, tmp_path):
        card = card_of(audited, "mine-s0")
        card["layers"][1]["hidden_norm"]["value"] *= 1.01
        (tmp_path / "report.json").write_text(json.dumps(seal({k: v for k, v in card.items() if k != "hash"})))
        found = wb.verify(tmp_path, audited.out / "mine-s0")
        assert found.outcome == "refuted"
        assert any(check.what.startswith("layers") for check in found.differences)

    def test_diagnose_says_how_such_a_run_is_measured(self, audited, capsys):
        from walkback.cli.main import main

        assert main(["diagnose", str(audited.out / "mine-s0")]) == 3
        assert "Run the audit again" in capsys.readouterr().err
        assert main(["ls", "runs", str(audited.out)]) in (0, 3)


def copied(source, target):
    import shutil

    return Path(shutil.copytree(source, target / "copy"))


class TestSeveralModels:
    def made(self, count):
        models = []
        for seed in range(count):
            torch.manual_seed(seed)
            models.append(project.Net())
        return models

    ACC, FROZEN, BP, BP_FROZEN = [0.8, 0.81, 0.79], [0.6, 0.62, 0.6], [0.9, 0.9, 0.91], [0.6, 0.61, 0.6]

    def accuracies(self, pick):
        return {
            "headline_acc": pick(self.ACC),
            "frozen_baseline_acc": {"method_shell": pick(self.FROZEN), "bp_shell": pick(self.BP_FROZEN)},
            "bp_acc": pick(self.BP),
        }

    def test_a_list_of_models_is_one_row_over_seeds(self, tmp_path):
        credits = [lambda seen, s=s: project.my_credit(seen, project.draw_feedback(s)) for s in range(3)]
        found = wb.diagnose(
            self.made(3),
            iter(project.test_batches()),
            **self.accuracies(list),
            credit=credits,
            method_name="mine",
        )
        (row,) = found.table.rows
        assert len(row.cards) == 3
        assert row.claims["depth"].outcome == "stands"
        assert found.verdict == row.rulings["claims"].outcome
        low, high = row.cards[0]["statistics"]["interval"]
        gains = 100 * (np.array(self.ACC) - np.array(self.FROZEN))
        half = 4.302652729696142 * gains.std(ddof=1) / 3**0.5
        assert (low, high) == pytest.approx((gains.mean() - half, gains.mean() + half))
        cosines = {card["layers"][1]["credit"]["cos"]["value"] for card in row.cards}
        assert len(cosines) == 3, "each model is measured with its own feedback"
        files = found.save(tmp_path)
        assert (tmp_path / "audit.html") in files
        assert len(list(tmp_path.glob("*/report.json"))) == 3

    def test_reports_of_single_seeds_are_collected_into_the_same_row(self):
        reports = [
            wb.diagnose(model, project.test_batches(), method_name="mine", **self.accuracies(lambda a, i=i: a[i]))
            for i, model in enumerate(self.made(3))
        ]
        together = wb.diagnose(self.made(3), project.test_batches(), method_name="mine", **self.accuracies(list))
        found = wb.collect(reports)
        assert found.table.rows[0].claims == together.table.rows[0].claims
        assert [card["layers"] for card in found.table.rows[0].cards] == [
            card["layers"] for card in together.table.rows[0].cards
        ]
        with pytest.raises(InputError, match="headline_acc"):
            wb.collect([reports[0], reports[1].rejudge(), together.reports[0]])

    def test_bad_lists_are_refused(self):
        models = self.made(2)
        for given, got in (
            ({"headline_acc": [0.5, 0.5, 0.5]}, "3 accuracies for 2 models"),
            ({"credit": [None]}, "1 entries for 2 models"),
        ):
            with pytest.raises(InputError, match=got):
                wb.diagnose(models, project.test_batches(), **given)
        for bad in ([], [3]):
            with pytest.raises(InputError):
                wb.collect(bad)
        with pytest.raises(InputError, match="empty"):
            wb.diagnose([], project.test_batches())


def command(cwd, *words, **extra):
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | extra
    return subprocess.run(
        [sys.executable, "-m", "walkback", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


AUDIT = ("audit", "--train", "own_loop_project:train", "--methods", "mine", "bp", "--device", "cpu")


def test_bad_commands_are_refused_in_a_sentence(tmp_path, capsys, monkeypatch):
    from walkback.cli.main import main

    monkeypatch.chdir(tmp_path)
    for words, got in (
        (["audit", "--train", "own_loop_project:nothing", "--methods", "mine"], "nothing"),
        (["audit", "--train", "own_loop_project:train"], "--methods"),
        ([*AUDIT, "--arch", "vit_mini"], "--arch"),
        ([*AUDIT, "--set", "lr=0.1"], "--set"),
        (["audit", "--build", "own_loop_project:Net"], "--build"),
        ([*AUDIT, "--credit", "own_loop_project:no_credit"], "no_credit"),
        ([*AUDIT, "--seeds", "1", "1"], "1"),
    ):
        assert main(words) == 3, words
        error = capsys.readouterr().err
        assert got in error
        assert "Traceback" not in error
    assert not list(tmp_path.iterdir())


RETURNED = "    return wb.Trained(model, correct=model(x).argmax(1) == y, feedback=feedback)\n"
BAD_PROJECTS = {
    "returns_nothing": (RETURNED, "    return None\n", "NoneType"),
    "raises": (RETURNED, "    raise ValueError('no such data')\n", "no such data"),
    "moves_frozen": (
        "            optimiser.step()\n",
        "            model.stages[0][0].weight.data -= 1\n",
        "0.0.weight",
    ),
    "over_one": (RETURNED, "    return wb.Trained(model, accuracy=62.5, feedback=feedback)\n", "62.5"),
    "freezes_nothing": ("job.freeze(model.stages)", "job.freeze()", "job.freeze"),
    "does_not_freeze": ("    job.freeze(model.stages)\n", "", "mine-frozen-s0"),
    "no_blocks": ("range(3))\n        self.head", "range(0))\n        self.head", "blocks"),
    "imports_nothing": ("import os\n", "import os\nimport not_there_at_all\n", "not_there_at_all"),
    "no_python": ("import os\n", "import os\ndef broken(:\n", "SyntaxError"),
}


QUICK = ("returns_nothing", "no_blocks", "imports_nothing", "no_python")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in BAD_PROJECTS]
)
def test_bad_training_functions_are_refused_in_a_sentence(name, tmp_path, capsys, monkeypatch):
    from walkback.cli.main import main

    old, new, got = BAD_PROJECTS[name]
    text = PROJECT.read_text()
    assert text.count(old) == 1
    (tmp_path / f"project_{name}.py").write_text(text.replace(old, new))
    monkeypatch.chdir(tmp_path)
    words = ["audit", "--train", f"project_{name}:train", "--methods", "mine", "--seeds", "0", "--device", "cpu"]
    assert main([*words, "--quiet", "--out", "a"]) == 3
    error = capsys.readouterr().err
    assert got in error
    assert len(error.strip().splitlines()) == 1
    for path in tmp_path.glob("a/mine-*"):
        assert store.open_run(path).is_done == (path.name == "mine-s0" and name in ("moves_frozen", "does_not_freeze"))


def test_a_changed_training_function_is_refused_unless_it_is_forced_and_then_the_card_says_so(
    tmp_path, capsys, monkeypatch
):
    from walkback.cli.main import main

    source = tmp_path / "project_that_changes.py"
    source.write_text(PROJECT.read_text())
    monkeypatch.chdir(tmp_path)
    words = ["audit", "--train", "project_that_changes:train", "--methods", "mine", "--seeds", "0", "--quiet"]
    assert main(words) < 3
    source.write_text(source.read_text() + "\n# changed\n")
    before = {path: path.read_bytes() for path in tmp_path.glob("runs/*/*")}
    capsys.readouterr()
    assert main([*words, "--resume"]) == 3
    assert "project_that_changes.py" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.glob("runs/*/*")} == before
    assert main([*words, "--resume", "--force"]) < 3
    card = json.loads((tmp_path / "runs" / "mine-s0" / "report.json").read_text())
    assert [line for line in card["limits"] if "project_that_changes.py" in line]
    assert all(path.read_bytes() == data for path, data in before.items() if path.name in ("run.json", store.MODEL))


@pytest.mark.slow
def test_repeated_samples_are_on_the_card_and_verified(tmp_path):
    given = {**ASKED, "methods": ["mine"], "seeds": [0], "out": tmp_path}
    given["eval_batches"] = [*project.test_batches(), *project.test_batches()]
    wb.audit(project.train, distinct=False, **given)
    card = json.loads((tmp_path / "mine-s0" / "report.json").read_text())
    assert [line for line in card["limits"] if "distinct=False" in line and "256" in line]
    assert wb.verify(tmp_path / "mine-s0", tmp_path / "mine-s0").outcome == "confirmed"
    card["limits"] = [line for line in card["limits"] if "distinct=False" not in line]
    (tmp_path / "report.json").write_text(json.dumps(seal({k: v for k, v in card.items() if k != "hash"})))
    found = wb.verify(tmp_path, tmp_path / "mine-s0")
    assert {check.what.partition("[")[0] for check in found.differences} == {"limits"}


@pytest.mark.slow
def test_the_command_trains_in_processes_the_same_bits_and_is_verified(audited, tmp_path):
    (tmp_path / "own_loop_project.py").write_text(PROJECT.read_text())
    words = [*AUDIT, "--seeds", "0", "1", "--out", "a", "--describe", "data=mine", "--json"]
    done = command(tmp_path, *words, "--executor", "local", "--jobs", "2")
    table = json.loads(done.stdout)
    assert done.returncode == {"trustworthy": 0, "walked_back": 1}.get(table["verdict"], 2), done.stderr
    for name in ("mine-s0", "mine-frozen-s1", "bp-s1"):
        ours, theirs = store.open_run(tmp_path / "a" / name).params(), weights(audited, name)
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
    assert command(tmp_path, *words).returncode == 3
    again = command(tmp_path, *words, "--resume")
    assert json.loads(again.stdout) == table
    verified = command(tmp_path, "verify", "a/mine-s0", "a/mine-s0")
    assert verified.returncode == 0, verified.stdout
    source = tmp_path / "own_loop_project.py"
    source.write_text(source.read_text() + "\n# changed\n")
    verified = command(tmp_path, "verify", "a/mine-s0", "a/mine-s0")
    assert verified.returncode == 1
    assert "source own_loop_project.py" in verified.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Warnings of Ray and of submitit.
@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_jobs_on_ray_and_submitit_have_the_same_bits(engine, audited, tmp_path, monkeypatch):
    pytest.importorskip("ray" if engine == "ray" else "submitit")
    from walkback.sweeping import slurm_executor

    def on_this_machine(folder, settings, wants_gpu=False, _made=slurm_executor.SlurmExecutor):
        return _made(folder, settings, wants_gpu, cluster="local")

    monkeypatch.setattr(slurm_executor, "SlurmExecutor", on_this_machine)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    asked = {**ASKED, "seeds": [1], "methods": ["mine"], "device": "cpu"}
    heard = Recorder()
    again = wb.audit(project.train, out=tmp_path / "a", executor=engine, jobs=2, listener=heard, **asked)
    assert again.table is not None
    assert sorted(heard.trained) == ["bp-frozen-s1", "bp-s1", "mine-frozen-s1", "mine-s1"]
    for name in heard.trained:
        ours, theirs = weights(again, name), weights(audited, name)
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.slow
def test_a_failing_function_is_named_by_every_executor(tmp_path):
    (tmp_path / "own_loop_project.py").write_text(PROJECT.read_text().replace("job.freeze(", "job.frost("))
    for words in ([], ["--executor", "local"]):
        done = command(tmp_path, *AUDIT, "--out", f"out{len(words)}", *words)
        assert done.returncode == 3
        assert "frost" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("executor", [[], ["--executor", "local", "--jobs", "2"]])
def test_a_killed_audit_goes_on_to_the_same_bits(executor, audited, tmp_path):
    draws = random.Random(len(executor))
    (tmp_path / "own_loop_project.py").write_text(PROJECT.read_text())
    words = [sys.executable, "-m", "walkback", *AUDIT, "--seeds", "0", "--out", "a", "--resume", *executor]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for _ in range(3):
        with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=-3, stderr=-3) as process:
            time.sleep(draws.uniform(2, 9))
            process.send_signal(signal.SIGKILL)
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    for name in ("mine-s0", "mine-frozen-s0", "bp-s0", "bp-frozen-s0"):
        ours, theirs = store.open_run(tmp_path / "a" / name).params(), weights(audited, name)
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
