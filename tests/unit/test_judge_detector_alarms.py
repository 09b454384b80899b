"""In which rows of a training log a detector fails, and the first such epoch."""

from __future__ import annotations

import pytest

from walkback.judge.detector_alarms import alarm_of, first_alarm_epoch
from walkback.judge.thresholds import DiagnosticThresholds

T = DiagnosticThresholds()


def row(epoch, growth=2.0, grad_top=1e-3, **more):
    return {"epoch": epoch, "test_acc": 0.5, "growth": growth, "grad_top": grad_top, **more}


@pytest.mark.parametrize(("growth", "raised"), [(50.0, False), (50.1, True), (None, False)])
def test_d1_fails_above_its_threshold(growth, raised):
    assert alarm_of("D1", T)(row(1, growth=growth)) is raised


def test_an_overflow_fails_d1_without_a_growth_value():
    assert alarm_of("D1", T)(row(1, growth=None, overflow=3))
    assert not alarm_of("D1", T)(row(1, growth=2.0, overflow=None))


@pytest.mark.parametrize(("top", "own", "papers"), [(1e-7, False, True), (9e-8, True, True), (8e-7, False, False)])
def test_d2_fails_under_its_floor_or_a_given_one(top, own, papers):
    assert alarm_of("D2", T)(row(1, grad_top=top)) is own
    assert alarm_of("D2", T, 8e-7)(row(1, grad_top=top)) is papers
    assert not alarm_of("D2", T)(row(1, grad_top=None))


def test_a_floor_of_zero_is_a_floor():
    assert not alarm_of("D2", T, 0.0)(row(1, grad_top=1e-9))


def test_thresholds_are_those_of_the_judge():
    assert alarm_of("D1", DiagnosticThresholds(h_norm_explosion_ratio=1.5))(row(1))
    assert alarm_of("D2", DiagnosticThresholds(g_norm_floor=1.0))(row(1))


def test_the_first_alarm_ignores_epochs_that_were_not_measured():
    rows = [{"epoch": 1, "test_acc": 0.3}, row(2), {"epoch": 3}, row(4, growth=99.0), row(5, growth=99.0)]
    assert first_alarm_epoch(rows, alarm_of("D1", T)) == 4
    assert first_alarm_epoch(rows, alarm_of("D2", T)) is None
    assert first_alarm_epoch([], alarm_of("D1", T)) is None
