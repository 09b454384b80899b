"""The reference package's names, served by walkback.

    from protocol import diagnose, DiagnosticReport

`diagnose` judges by the first paper's four diagnostics (edition `four`), as that package's README describes.
"""

from __future__ import annotations

from functools import partial

import walkback
from walkback.judge.report import DiagnosticReport

diagnose = partial(walkback.diagnose, protocol="four")

__all__ = ["DiagnosticReport", "diagnose"]
