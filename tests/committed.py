"""The committed results, which a source distribution leaves out: tests that read them are skipped there."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "paper"
needs_results = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="results/ is not here: it is in a checkout, not in a source distribution"
)
