"""`from protocol.report import DiagnosticThresholds`, as the reference package has it."""

from walkback.judge.report import DiagnosticReport
from walkback.judge.thresholds import DiagnosticThresholds

__all__ = ["DiagnosticReport", "DiagnosticThresholds"]
