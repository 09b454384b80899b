"""The campaign of damage, short here and long with `make test-all`; `python -m walkback.campaign` for more."""

from __future__ import annotations

import pytest

from walkback.campaign import trials
from walkback.campaign.specimens import make_specimens
from walkback.campaign.trials import run_campaign
from walkback.core.reading import json_text


@pytest.fixture(scope="module")
def specimens(tmp_path_factory):
    return make_specimens(tmp_path_factory.mktemp("specimens"))


@pytest.mark.parametrize("count", [40, pytest.param(5000, marks=pytest.mark.slow)])
def test_damage_is_refused_in_one_sentence(specimens, tmp_path, count):
    found = run_campaign(specimens, tmp_path, seed=1, trials=count, seconds=3600)
    assert found.bad == []
    assert found.tried == count
    assert found.refused > count / 4


def test_the_same_seed_does_the_same(specimens, tmp_path):
    journals = [each for each in specimens if each.folder.name == "journal"]
    first, second = (str(run_campaign(journals, tmp_path, seed=3, trials=30, seconds=600)) for _ in range(2))
    assert first == second


def test_it_notices_a_traceback_a_hang_a_change_and_an_acceptance(specimens, tmp_path, monkeypatch):
    journals = [each for each in specimens if each.folder.name == "journal"]

    def bad_of(command, chosen=journals):
        with monkeypatch.context() as patch:
            patch.setattr(trials, "run_command", command)
            patch.setattr(trials, "SECONDS", 1)
            return run_campaign(chosen, tmp_path, seed=2, trials=3, seconds=600).bad

    def change(words):
        (tmp_path / "trial" / "new").write_text("x")
        return 3, "walkback: no.\n"

    def hang(words):
        while True:
            pass

    assert all("RecursionError" in each for each in bad_of(lambda words: json_text.MAX_DEPTH and _deep(0)))
    assert "TimeoutError" in bad_of(hang)[0]
    assert "files were changed" in bad_of(change)[0]
    assert "exit code 9" in bad_of(lambda words: (9, ""))[0]
    finished = [each for each in specimens if each.folder.name == "finished"]
    with monkeypatch.context() as patch:
        patch.setattr(trials, "run_command", lambda words: (0, ""))
        found = run_campaign(finished, tmp_path, seed=2, trials=40, seconds=600)
    assert any("accepted with exit code 0" in each for each in found.bad)


def _deep(level):
    return _deep(level + 1)
