"""The headline: settings whose verdict differs between edition three and the claims."""

from __future__ import annotations

import pytest
from fake_measurements import exploded, healthy
from planted import PlantedRuns, holds

from walkback_papers.scale import SMOKE
from walkback_papers.studies.complementarity import STUDY as COMPLEMENTARITY
from walkback_papers.studies.headline_change import STUDY


def make_report(tmp_path, monkeypatch, accuracy, measured):
    """The report over backprop, which passes, and DFA as given; the two seeds make two settings, not four."""
    configs = SMOKE.runs(["bp", "dfa"])
    monkeypatch.setattr(type(COMPLEMENTARITY), "runs", lambda self, scale: configs)
    planted = PlantedRuns(tmp_path)
    for config in configs:
        is_bp = str(config.method) == "bp"
        baselines = {"shell": 0.5, "bp": 0.9}
        given = (
            {"accuracy": 0.9, "measured": {"cosines": 1.0}} if is_bp else {"accuracy": accuracy, "measured": measured}
        )
        planted.plant([config], **baselines, **given)
    return STUDY.report_results(planted.results(), SMOKE)


@pytest.mark.parametrize(
    ("accuracy", "measured", "counts", "lost"),
    [
        # Aligned and useful blocks: both trust it.
        (0.8, healthy(groups=2), {"trustworthy": ["2", "0", "0", "0"]}, False),
        # No cosine above its null: edition three does not look at it.
        (0.8, healthy(groups=2, cosines=[0.0] * 5), {"trustworthy": ["1", "0", "1", "0"]}, True),
        (0.4, exploded(groups=2), {"trustworthy": ["1", "0", "0", "0"], "walked back": ["0", "0", "1", "0"]}, False),
    ],
    ids=["aligned", "not aligned", "exploded"],
)
def test_settings_are_counted_by_both_verdicts(tmp_path, monkeypatch, accuracy, measured, counts, lost):
    report = make_report(tmp_path, monkeypatch, accuracy, measured)
    table = report.tables[0]
    assert {row[0].text: [cell.text for cell in row[1:]] for row in table.rows} == counts
    assert holds(report, "some-lost") is lost
    assert holds(report, "none-gained") is True
    assert [row[0].text for row in report.tables[1].rows] == (["dfa"] if lost else [])


def test_a_walked_back_setting_that_its_claims_trust_is_reported(tmp_path, monkeypatch):
    grown = healthy(groups=2, growth=400.0, grad=1e-9)
    report = make_report(tmp_path, monkeypatch, 0.8, grown)
    assert holds(report, "none-gained") is False
    assert [row[0].text for row in report.tables[1].rows] == ["dfa"]
