"""`assert_trustworthy`: what it accepts, what it refuses, its message; and the pytest plugin that offers it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from test_report import card_of, report_of

from walkback.core.errors import InputError
from walkback.report.assertion import HOLDING, assert_trustworthy

GOOD, BAD = card_of("healthy"), card_of("exploded")


def test_the_cards_of_these_tests_are_one_of_each():
    assert GOOD["verdict"] == "trustworthy"
    assert BAD["verdict"] != "trustworthy"


def test_every_form_of_a_trustworthy_report_passes(tmp_path):
    (tmp_path / "report.json").write_text(json.dumps(GOOD))
    for report in (report_of("healthy"), GOOD, tmp_path, str(tmp_path), tmp_path / "report.json"):
        assert_trustworthy(report)
        assert_trustworthy(report, claims="depth")
        assert_trustworthy(report, claims=("depth", "alignment"))


def test_the_message_has_the_method_the_claims_and_the_checks_that_fail():
    with pytest.raises(AssertionError) as failed:
        assert_trustworthy(BAD)
    head, *lines = str(failed.value).splitlines()
    assert head.startswith("DFA (resmlp, cifar10) is not trustworthy: ")
    assert {line.split()[0] for line in lines[:-1]} == set(BAD["claims"])
    for claim in BAD["claims"].values():
        assert claim["reason"] in str(failed.value)
    assert "D1" in lines[-1]


@pytest.mark.parametrize("name", BAD["claims"])
def test_each_claim_is_asked_on_its_own(name):
    if BAD["claims"][name]["outcome"] in HOLDING:
        assert_trustworthy(BAD, claims=name)
    else:
        with pytest.raises(AssertionError, match=f"may not claim {name}"):
            assert_trustworthy(BAD, claims=name)


def test_what_is_no_report_is_refused(tmp_path):
    for wrong in (0.93, None):
        with pytest.raises(InputError, match="expected what walkback"):
            assert_trustworthy(wrong)
    with pytest.raises(InputError, match="Unknown claim 'dept'"):
        assert_trustworthy(GOOD, claims="dept")
    with pytest.raises(InputError):
        assert_trustworthy(tmp_path)
    with pytest.raises(InputError):
        assert_trustworthy({**BAD, "verdict": "trustworthy"})


def test_the_fixture_in_a_suite_of_ones_own(tmp_path):
    """One test passes, one fails with the message; torch is imported by neither."""
    for name, card in (("good", GOOD), ("bad", BAD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(card))
    (tmp_path / "test_mine.py").write_text(
        "import sys\n"
        "def test_good(assert_trustworthy): assert_trustworthy('good')\n"
        "def test_bad(assert_trustworthy): assert_trustworthy('bad', claims=('alignment',))\n"
        "def test_torch(): assert 'torch' not in sys.modules\n"
    )
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    words = [sys.executable, "-m", "pytest", "-q", "-p", "walkback.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "DFA (resmlp, cifar10) may not claim alignment: " in done.stdout
    assert "assertion.py" not in done.stdout


def test_the_plugin_is_registered_and_imports_neither_torch_nor_a_card():
    from walkback.core.plugins import registered

    (point,) = [point for point in registered("pytest11") if point.name == "walkback"]
    code = f"import sys, {point.value}; sys.exit(bool({{'torch', 'numpy', 'walkback.judge.card'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
