"""`python -m protocol.smoke_test`: its verdicts, and its output and exit code if one is not as expected."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from protocol import smoke_test


@pytest.mark.slow
def test_the_smoke_test_agrees_with_the_reference_package(tmp_path):
    found = {report.method_name: report for report in smoke_test.reports(tmp_path)}
    assert {name: report.verdict for name, report in found.items()} == smoke_test.EXPECTED | smoke_test.WITHOUT_DEPTH
    for name, report in found.items():
        assert report.protocol == "four"
        assert ("depth utility not checked" in str(report)) == (name in smoke_test.WITHOUT_DEPTH)


@pytest.mark.parametrize(("last", "code", "word"), [("trustworthy", 0, "as expected"), ("walked_back", 1, "EXPECTED")])
def test_an_unexpected_verdict_is_printed_and_fails(monkeypatch, capsys, last, code, word):
    verdicts = ["trustworthy", "walked_back", last]
    names = [*smoke_test.EXPECTED, *smoke_test.WITHOUT_DEPTH]
    reports = [SimpleNamespace(method_name=n, verdict=v) for n, v in zip(names, verdicts, strict=True)]
    monkeypatch.setattr(smoke_test, "reports", lambda _out: reports)
    assert smoke_test.main() == code
    lines = capsys.readouterr().out.splitlines()[-3:]
    assert [line.split()[0] for line in lines] == names
    assert lines[0].endswith("as expected")
    assert word in lines[2]
