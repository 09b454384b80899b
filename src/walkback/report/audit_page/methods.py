"""What the audit page shows of each method at first sight: verdict, picture, chips, claims and their reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from walkback.judge.audit_table import AuditRow
from walkback.judge.claim import Claim
from walkback.judge.statistics import NATS, digits_of
from walkback.report import accuracy_plot, cosine_plot
from walkback.report.audit_page.member import Member
from walkback.report.cells import size, tidy
from walkback.report.sections import CLAIM_KINDS

GOOD, BAD, OPEN, NONE = "good", "bad", "warn", "none"
KIND_SIGNS = {GOOD: "✓", BAD: "✗", OPEN: "?", NONE: "–"}


@dataclass(frozen=True)
class Chip:
    """A check or a claim in two or three words."""

    id: str
    words: str
    value: str
    """Its number; empty where a word is enough."""
    kind: str
    term: str
    """The glossary's term."""
    title: str
    threshold: str = ""
    """Of a check: the name of its threshold, the value of that, and on which side of it the check fails."""
    limit: str = ""
    side: str = ""

    @property
    def sign(self) -> str:
        return KIND_SIGNS[self.kind]


@dataclass(frozen=True)
class ShownClaim:
    """A claim with its reason."""

    shown: str
    reason: str
    kind: str

    @property
    def sign(self) -> str:
        return KIND_SIGNS[self.kind]

    @staticmethod
    def of(claim: Claim) -> ShownClaim:
        return ShownClaim(claim.shown, tidy(claim.reason), CLAIM_KINDS.get(claim.outcome, OPEN))


@dataclass(frozen=True)
class ShownMethod:
    """One method at first sight."""

    member: Member
    number: str
    """Its accuracy or loss."""
    accuracy: Markup
    accuracy_texts: tuple[str, ...]
    frozen: float | None
    """The mean of the frozen baseline that decides: the script moves what the depth claim asks for beside it."""
    cosines: Markup
    cosine_texts: tuple[str, ...]
    chips: tuple[Chip, ...]
    checks: tuple[Chip, ...]
    """The checks that the editions use, with their thresholds."""
    depth: ShownClaim
    alignment: ShownClaim


@dataclass(frozen=True)
class ShownMethods:
    """All methods, and the axes that their plots share."""

    methods: tuple[ShownMethod, ...]
    accuracy_name: str
    accuracy_ticks: tuple[tuple[str, str], ...]
    span: accuracy_plot.Span
    cosine_ends: tuple[float, float]


def shown_methods(members: Sequence[Member], rows: Sequence[AuditRow]) -> ShownMethods:
    """The methods of a table in its order."""
    marks = [accuracy_plot.marks_of(row.cards[0]) for row in rows]
    blocks = [cosine_plot.block_marks(row.cards) for row in rows]
    null_z = rows[0].cards[0]["thresholds"]["null_z"]
    is_loss = rows[0].cards[0]["statistics"]["unit"] == NATS
    span = accuracy_plot.span_of(mark for each in marks for mark in each)
    ticks = span.ticks(percent=not is_loss)
    ends = cosine_plot.cosine_range(blocks, null_z)
    return ShownMethods(
        methods=tuple(
            ShownMethod(
                member=member,
                number=_number(own, is_loss),
                accuracy=accuracy_plot.accuracy_plot(own, span, ticks, _needed(row, own)),
                accuracy_texts=accuracy_plot.accuracy_texts(own, is_loss),
                frozen=None if _needed(row, own) is None else own[1].mean,
                cosines=cosine_plot.cosine_plot(credit, ends, null_z, cosine_plot.without_blocks(row.cards)),
                cosine_texts=tuple(cosine_plot.block_texts(credit, cosine_plot.without_blocks(row.cards))),
                chips=tuple(chips_of(row)),
                checks=tuple(checks_of(row)),
                depth=ShownClaim.of(row.claims["depth"]),
                alignment=ShownClaim.of(row.claims["alignment"]),
            )
            for member, row, own, credit in zip(members, rows, marks, blocks, strict=True)
        ),
        accuracy_name=accuracy_plot.accuracy_name(rows[0].cards[0]),
        accuracy_ticks=tuple(ticks),
        span=span,
        cosine_ends=ends,
    )


def _needed(row: AuditRow, marks: Sequence[accuracy_plot.AccuracyMark]) -> float | None:
    lanes = [mark.lane for mark in marks[:2]]
    return accuracy_plot.needed_value(row.cards[0], marks[1].mean) if lanes == ["own", "frozen"] else None


def _number(marks: Sequence[accuracy_plot.AccuracyMark], is_loss: bool) -> str:
    if not marks or marks[0].lane != "own":
        return ""
    return f"loss {marks[0].mean:.3f}" if is_loss else f"{100 * marks[0].mean:.1f} %"


def checks_of(row: AuditRow) -> list[Chip]:
    """Growth, reference and depth utility of a method over its seeds."""
    growth, reference, utility = ([_check(card, name) for card in row.cards] for name in ("D1", "D2", "D3"))
    is_loss = utility[0]["unit"] == NATS
    line = "frozen_loss_margin_nats" if is_loss else "frozen_acc_margin_pp"
    return [
        _check_chip(growth, "growth", _extreme(growth, max, _factor), "growth (D1)", "h_norm_explosion_ratio"),
        _check_chip(reference, "reference", _extreme(reference, min, _norm), "|g_L|", "g_norm_floor"),
        _check_chip(utility, "depth utility", _gain(utility[0]), "depth utility (D3)", line),
    ]


def _check_chip(checks: Sequence[Mapping[str, Any]], words: str, value: str, term: str, threshold: str) -> Chip:
    side = "above" if checks[0]["side"] == "above" else "under"
    limit = "" if checks[0]["threshold"] is None else size(checks[0]["threshold"])
    return Chip(checks[0]["id"], words, value, _kind(checks), term, _reasons(checks), threshold, limit, side)


def chips_of(row: AuditRow) -> list[Chip]:
    """Growth, reference, depth and alignment of a method over its seeds."""
    depth, alignment = (row.claims[name] for name in ("depth", "alignment"))
    gain = _gain(_check(row.cards[0], "D3"))
    return [
        *checks_of(row)[:2],
        Chip("depth", "depth", gain, _claim_kind(depth), "depth claim", f"depth {depth.shown}"),
        Chip("alignment", "alignment", "", _claim_kind(alignment), "alignment claim", f"alignment {alignment.shown}"),
    ]


def _gain(check: Mapping[str, Any]) -> str:
    value, unit = check["value"], check["unit"]
    return "" if value is None else f"{value:+.{digits_of(unit)}f} {unit}"


def _check(card: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return next(check for check in card["checks"] if check["id"] == name)


def _claim_kind(claim: Claim) -> str:
    return CLAIM_KINDS.get(claim.outcome, OPEN)


def _kind(checks: Sequence[Mapping[str, Any]]) -> str:
    statuses = {check["status"] for check in checks}
    return BAD if "raised" in statuses else GOOD if statuses == {"clear"} else OPEN


def _reasons(checks: Sequence[Mapping[str, Any]]) -> str:
    reasons = [tidy(check["reason"].partition(";")[0]) for check in checks]
    return "; ".join(dict.fromkeys(reasons))


def _extreme(
    checks: Sequence[Mapping[str, Any]],
    worst: Callable[[list[float]], float],
    words: Callable[[float], str],
) -> str:
    """The worst value over seeds; a word where a seed has none."""
    infinite = any(check["status"] == "raised" and check["value"] is None for check in checks)
    known = [check["value"] for check in checks if check["value"] is not None]
    if infinite:
        return "infinite"
    return words(worst(known)) if len(known) == len(checks) else "not measured"


def _factor(value: float) -> str:
    return f"{value:,.0f}×" if value >= 10 else f"{value:.1f}×"


def _norm(value: float) -> str:
    return size(float(f"{value:.1g}"))
