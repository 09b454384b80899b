"""Failure modes by name, and the walk-back chain of questions and answers.

The chain always has the same order: what the headline alone would claim, whether the deepest reference is meaningful,
whether trained blocks beat random ones, and then which failure mode it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from walkback.judge.card_part import CardPart
from walkback.judge.claim import Claim
from walkback.judge.evidence import Evidence, mean
from walkback.judge.flag import Flag
from walkback.judge.quantities import Quantities

EVIDENCE = ("replay", "intervention", "cross_architecture")
"""Keys of the context under which a study may give a sentence about the failure mode."""


@dataclass(frozen=True)
class Mode(CardPart):
    """One failure mode that was found."""

    id: Literal["1a", "1b", "2"]
    name: str
    reason: str


@dataclass(frozen=True)
class Step(CardPart):
    """One step of the walk-back chain."""

    question: str
    answer: str


def modes(q: Quantities, flags: Mapping[str, Flag], alignment: Claim) -> tuple[Mode, ...]:
    """The failure modes that the flags and the alignment claim show."""
    found = []
    if flags["D1"].status == "raised":
        found.append(Mode("1a", "scale growth", flags["D1"].reason))
    floor = flags["D2"].threshold
    assert floor is not None
    # A fitted network has a small gradient because its error is small: that is no collapse.
    if flags["D2"].status == "raised" and not q.is_fitted(floor):
        found.append(Mode("1b", "reference collapse", f"{flags['D2'].reason}; {_sub_mode(flags['direction'])}"))
    if flags["concentration"].status == "raised":
        found.append(Mode("2", "concentrated credit", flags["concentration"].reason))
    elif alignment.name == "null" or alignment.outcome == "detectable_small":
        found.append(Mode("2", "low credit", alignment.reason))
    return tuple(found)


def _sub_mode(direction: Flag) -> str:
    names = {"raised": "drift-dominated", "clear": "sample-specific"}
    return f"sub-mode {names[direction.status]}" if direction.status in names else "sub-mode not known"


def chain(
    q: Quantities,
    flags: Mapping[str, Flag],
    evidence: Evidence,
    depth: Claim,
    found: tuple[Mode, ...],
    context: Mapping[str, Any],
) -> tuple[Step, ...]:
    """The walk-back chain, in the protocol's order; `found` are the failure modes."""
    return (
        Step("What would accuracy and alignment alone claim?", _headline(q, evidence)),
        Step("Is the deepest reference meaningful?", _reference(q, flags)),
        Step("Do trained blocks beat matched random blocks?", f"{_yes_or_no(flags['D3'])}: {flags['D3'].reason}"
             f" (the claim: {depth.shown})"),
        Step("Which mode is it?", _modes_text(found, context)),
    )  # fmt: skip


def _headline(q: Quantities, evidence: Evidence) -> str:
    accuracy = f"accuracy {mean(evidence.headline_acc):.3f}" if evidence.headline_acc else "no accuracy was given"
    return f"{accuracy}; mean cosine over layers (A1): {q.aggregates.a1:.3f}"


def _reference(q: Quantities, flags: Mapping[str, Flag]) -> str:
    """The answer by the direction's validity, or by the gradient's size if there was no replay."""
    d2, direction = flags["D2"], q.top.direction
    answers = {"valid": "yes", "noise": "no", "invalid": "no", "degraded": "in part"}
    answer = answers.get(direction.status) or {"raised": "doubtful", "clear": "as far as its size tells"}.get(d2.status)
    growth = f"; {flags['D1'].reason}" if flags["D1"].status == "raised" else ""
    return f"{answer or 'not known'}: {d2.reason}{growth}"


def _yes_or_no(d3: Flag) -> str:
    return {"raised": "no", "clear": "yes"}.get(d3.status, "not known")


def _modes_text(found: tuple[Mode, ...], context: Mapping[str, Any]) -> str:
    names = ", ".join(f"{mode.id} {mode.name}" for mode in found) or "none of the known modes was found"
    known = [f"{key.replace('_', ' ')}: {context[key]}" for key in EVIDENCE if context.get(key)]
    absent = [key.replace("_", " ") for key in EVIDENCE if not context.get(key)]
    beside = "; ".join([*known, f"no {', '.join(absent)} evidence" if absent else ""]).strip("; ")
    return f"{names} ({beside})"
