"""The pytest plugin: the fixture `assert_trustworthy`. Without a test that uses it, nothing else is imported."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture(scope="session", name="assert_trustworthy")
def _assert_trustworthy() -> Callable[..., None]:
    """`assert_trustworthy(report, claims=("depth",))` fails unless the verdict is trustworthy, or these claims hold."""
    from walkback.report.assertion import assert_trustworthy

    return assert_trustworthy
