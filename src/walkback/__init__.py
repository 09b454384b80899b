"""walkback: may you claim that your backprop alternative trains this network's depth?

Importing this package imports no torch; its functions and classes do, when they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from walkback.api import audit, collect, diagnose, load, study, tensors, train, update_alignment, verify
from walkback.core.errors import InputError, WalkbackError
from walkback.core.version import __version__

if TYPE_CHECKING:
    from walkback.auditing.audit import Audit
    from walkback.auditing.collect import ReportTable
    from walkback.auditing.own_loop.job import Job, Trained
    from walkback.credit.rule import CreditRule
    from walkback.judge.report import DiagnosticReport
    from walkback.judge.thresholds import DiagnosticThresholds
    from walkback.judge.verification import Verification
    from walkback.measure.subject import FrozenPass
    from walkback.nets.network import Network
    from walkback.report.study_report import StudyReport
    from walkback.runs.store import Run
    from walkback.runs.train_runs import ProgressListener, Result
    from walkback.watching.watch import Watch

__all__ = [
    "Audit",
    "CreditRule",
    "DiagnosticReport",
    "DiagnosticThresholds",
    "FrozenPass",
    "InputError",
    "Job",
    "Network",
    "ProgressListener",
    "ReportTable",
    "Result",
    "Run",
    "StudyReport",
    "Trained",
    "Verification",
    "WalkbackError",
    "Watch",
    "__version__",
    "audit",
    "collect",
    "diagnose",
    "load",
    "study",
    "tensors",
    "train",
    "update_alignment",
    "verify",
]

_CLASSES = {
    "Audit": "walkback.auditing.audit",
    "CreditRule": "walkback.credit.rule",
    "DiagnosticReport": "walkback.judge.report",
    "DiagnosticThresholds": "walkback.judge.thresholds",
    "FrozenPass": "walkback.measure.subject",
    "Job": "walkback.auditing.own_loop.job",
    "Network": "walkback.nets.network",
    "ProgressListener": "walkback.runs.train_runs",
    "ReportTable": "walkback.auditing.collect",
    "Result": "walkback.runs.train_runs",
    "Run": "walkback.runs.store",
    "StudyReport": "walkback.report.study_report",
    "Trained": "walkback.auditing.own_loop.job",
    "Verification": "walkback.judge.verification",
    "Watch": "walkback.watching.watch",
}
"""The module of each public class. Most need torch, so they are imported on first use."""


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
