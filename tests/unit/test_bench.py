"""Benches: that they run, what they compute from times, and what they print. No timing is asserted here."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from walkback.bench import BENCHES
from walkback.bench.benches import diagnose, fleet, rules, startup
from walkback.bench.plain import plain_net
from walkback.bench.result import Options, Result, Row, Spread
from walkback.bench.setup import TINY, Scale, scale
from walkback.bench.timing import interleaved
from walkback.cli.main import main
from walkback.core.errors import EXIT_INPUT
from walkback.credit import RULES

CPU = torch.device("cpu")
QUICK = Options(quick=True, device="cpu")


def well_formed(result: Result) -> None:
    assert result.rows
    for row in result.rows:
        if row.reason:
            assert row.ms is None
            assert row.ratio is None
            continue
        for spread in (row.ms, row.ratio):
            assert 0 < spread.low <= spread.median <= spread.high
    assert Result.from_json(json.loads(json.dumps(result.to_json(), allow_nan=False))) == result


class TestTiming:
    def test_tasks_take_turns_and_the_first_round_is_not_counted(self):
        done = []
        tasks = {"a": lambda: done.append("a"), "b": lambda: done.append("b")}
        heard = []
        seconds = interleaved(tasks, 3, CPU, heard.append)
        assert done == heard == ["a", "b"] * 4
        assert [len(seconds[name]) for name in "ab"] == [3, 3]

    def test_a_failing_task_leaves_the_collector_on(self):
        import gc

        with pytest.raises(ZeroDivisionError):
            interleaved({"a": lambda: 1 / 0}, 1, CPU)
        assert gc.isenabled()

    def test_spread_is_median_and_quartiles(self):
        assert Spread.of([5.0, 1.0, 3.0, 2.0, 4.0]) == Spread(3.0, 2.0, 4.0)
        assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)

    def test_bars_are_held_to_the_median(self):
        assert Row.of("a", [0.1, 0.2, 0.6], [1.0], most_ms=200.0).is_met is True
        assert Row.of("a", [0.1, 0.3, 0.6], [1.0], most_ms=200.0).is_met is False
        assert Row.of("a", [0.1], [0.03, 0.01, 0.02], most_ratio=0.02).is_met is True
        assert Row.of("a", [0.1], [0.03, 0.03, 0.02], most_ratio=0.02).is_met is False
        assert Row.of("a", [0.1], [1.0]).is_met is None


class TestBenches:
    @pytest.mark.parametrize("name", [name for name in BENCHES.names() if name != "rules"])
    def test_each_runs_and_its_result_survives_json(self, name):
        result = BENCHES.get(name)(QUICK)
        assert result.bench == name
        assert result.repeats == 2
        well_formed(result)

    def test_rules_runs(self):
        result = rules.run(Options(quick=True, device="cpu", methods=("bp", "dfa", "kp"), models=(2,)))
        well_formed(result)
        names = ["bp", "dfa", "kp"]
        assert [row.what for row in result.rows] == [f"{name}, {where}" for where in ("alone", "M=2") for name in names]

    def test_the_plain_net_is_the_network_that_is_measured(self):
        recipe = Scale().recipe("bp")
        plain = plain_net(3072, 256, 4, 10)
        assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in recipe.params().values())

    def test_quick_is_tiny_and_full_size_is_the_papers(self):
        assert scale(True, steps=99) == Scale(**TINY)
        assert (Scale().d, Scale().depth, Scale().dim) == (256, 4, 3072)


class TestArithmetic:
    """With the clock replaced by known times."""

    def test_a_pass_is_related_to_a_whole_epoch(self, monkeypatch):
        steps = TINY["steps"]
        times = {diagnose.LOOP: [steps * 0.01, steps * 0.02], diagnose.PASS: [0.039, 0.156]}
        monkeypatch.setattr(diagnose, "interleaved", lambda tasks, *_: {n: times.get(n, [1.0, 1.0]) for n in tasks})
        rows = {row.what: row for row in diagnose.run(QUICK).rows}
        assert rows[diagnose.LOOP].ms.median == pytest.approx(1e3 * (3.9 + 7.8) / 2)
        assert (rows[diagnose.PASS].ratio.low, rows[diagnose.PASS].ratio.high) == pytest.approx((0.0125, 0.0175))

    def test_a_fleet_is_related_to_the_loop_per_model(self, monkeypatch):
        def fixed(tasks, *_):
            return {name: [0.2] if name == "plain" else [0.1] for name in tasks}

        monkeypatch.setattr(fleet, "interleaved", fixed)
        result = fleet.run(Options(quick=True, device="cpu", models=(2,), methods=("bp",)))
        found = {row.what: (row.ms.median, row.ratio.median) for row in result.rows}
        step = 100 / TINY["steps"]
        expected = {"plain loop": (2 * step, 1), "single bp": (step, 2), "fleet bp, M=2": (step / 2, 4)}
        assert found == {name: pytest.approx(pair) for name, pair in expected.items()}

    def test_every_rule_of_the_catalog_is_priced_or_its_refusal_is_told(self, monkeypatch):
        monkeypatch.setattr(RULES.get("fa"), "refuses", lambda self, net: "it is Sunday")
        monkeypatch.setattr(rules, "Single", lambda *_: None)
        monkeypatch.setattr(rules, "Fleet", lambda *_: None)
        monkeypatch.setattr(rules, "interleaved", lambda tasks, *_: {n: [2.0 if n == "bp" else 3.0] for n in tasks})
        result = rules.run(QUICK)
        well_formed(result)
        told = {row.what: row.reason for row in result.rows if row.reason}
        assert list(told) == ["fa"]
        assert "it is Sunday" in told["fa"]
        timed = {row.what: row.ratio.median for row in result.rows if not row.reason}
        names = [name for name in RULES.names() if name != "fa"]
        assert set(timed) == {f"{name}, {where}" for name in names for where in ("alone", "M=2")}
        assert {name: ratio for name, ratio in timed.items() if ratio != 1.5} == {"bp, alone": 1.0, "bp, M=2": 1.0}

    def test_startup_tells_whether_help_imports_torch(self, monkeypatch):
        monkeypatch.setattr(startup, "interleaved", lambda tasks, *_: {name: [0.1] for name in tasks})
        assert startup.run(QUICK).settings == {"help_imports_torch": False}
        monkeypatch.setattr(startup, "LOADED", "import sys; sys.exit(1)")
        assert startup.run(QUICK).settings == {"help_imports_torch": True}


class TestCommand:
    def test_without_names_the_benches_are_listed(self, capsys):
        assert main(["bench"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == BENCHES.names()
        assert main(["bench", "--json"]) == 0
        assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == BENCHES.names()

    def test_listing_needs_no_torch(self):
        code = "import sys; from walkback.cli.main import main; main(['bench']); sys.exit('torch' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0

    def test_the_table_shows_every_row(self, capsys):
        assert main(["bench", "diagnose", "--quick", "--device", "cpu"]) == 0
        shown = capsys.readouterr().out
        for words in ("bench diagnose", "plain-loop epoch", "float64", "of an epoch", "390 steps"):
            assert words in shown
        assert "MISSED" not in shown
        assert "met" not in shown

    def test_json_says_where_it_was_measured(self, capsys, tmp_path):
        file = tmp_path / "found.json"
        words = ["bench", "diagnose", "--quick", "--repeats", "3", "--device", "cpu", "--json", "--out", str(file)]
        assert main(words) == 0
        printed = json.loads(capsys.readouterr().out)
        assert [printed] == json.loads(file.read_text())
        assert printed["repeats"] == 3
        assert printed["quick"] is True
        assert printed["versions"]["torch"] == torch.__version__
        assert printed["device"].startswith("cpu")
        assert printed["cores"] >= 1
        well_formed(Result.from_json(printed))

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["diagnoze"], "Unknown bench 'diagnoze'. Did you mean 'diagnose'?"),
            (["fleet", "--repeats", "0"], "--repeats is 0; expected at least 1."),
            (["fleet", "--models", "3", "0"], "--models is 0; expected at least 1."),
            (["fleet", "--quick", "--methods", "dff"], "Unknown method 'dff'. Did you mean 'dfa'?"),
            (["rules", "--quick", "--methods", "dff"], "Unknown method 'dff'. Did you mean 'dfa'?"),
        ],
    )
    def test_mistakes_are_told_in_a_sentence(self, capsys, words, sentence):
        assert main(["bench", *words]) == EXIT_INPUT
        assert sentence in capsys.readouterr().err
