"""Optimisations of the measurement do not change its values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tiny
from walkback.measure import vectors
from walkback.measure.inputs import regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject

DATA = "prototypes:train=96,test=300,dim=6,prototypes=8,labels=4"


def subject_and_groups(method):
    resolved = tiny.resolved(method, data=DATA, dtype="float32")
    data = resolved.source.load(None)
    subject = NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state())
    return subject, regroup([(data.test_x, data.test_y)])


def test_without_the_replay_the_frozen_pass_is_the_same():
    subject, groups = subject_and_groups("dfa")
    with_replay, without = measure(subject, groups), measure(subject, groups, MeasureOptions(replay=False))
    for name in ("hidden_norm", "grad_norm", "loss", "error_norm"):
        np.testing.assert_array_equal(without.arrays[name], with_replay.arrays[name])
    assert {name for name in without.arrays if "64" in name or name == "null_fresh"} == set()
    assert any("not asked for" in line for line in without.facts["skipped"])


@pytest.mark.parametrize("method", ["dfa", "fa", "kp"])
def test_fresh_feedback_with_a_cached_trace_equals_a_separate_trace(method):
    """kp's feedback is inside the Linears, so that its trace must not be cached."""
    subject, groups = subject_and_groups(method)
    subject64 = subject.double()
    frozen_pass = subject64.run(*groups[0])
    states = [subject64.fresh_state(draw) for draw in range(2)]
    kept = [subject64.credit(frozen_pass), *(subject64.credit_with(frozen_pass, state) for state in states)]
    separate = [
        subject.double().credit(frozen_pass),
        *(subject.double().credit_with(frozen_pass, state) for state in states),
    ]
    for left, right in zip(kept, separate, strict=True):
        for a, b in zip(left, right, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert not torch.equal(kept[1][0], kept[2][0])


def test_the_cached_trace_is_not_used_for_another_group():
    subject, groups = subject_and_groups("dfa")
    first, second = (subject.run(*group) for group in groups[:2])
    subject.credit(first)
    for a, b in zip(subject.credit(second), subject_and_groups("dfa")[0].credit(second), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


@pytest.mark.parametrize(("samples", "features"), [(40, 7), (7, 40)])
def test_both_formulas_of_the_null_width_agree(samples, features):
    draws = torch.Generator().manual_seed(0)
    a, g = (torch.randn(samples, features, generator=draws, dtype=torch.float64) for _ in range(2))
    a[3] = 0  # Left out.
    keep = torch.arange(samples) != 3
    u, v = vectors.units(a[keep]), vectors.units(g[keep])
    expected = ((u.T @ v).square().sum() / features).sqrt() / (samples - 1)
    torch.testing.assert_close(vectors.haar_std(a, g), expected, rtol=1e-12, atol=0)
    assert vectors.haar_std(a[3:4], g[3:4]).isnan()
