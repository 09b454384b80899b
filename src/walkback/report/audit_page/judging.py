"""The numbers that the audit page judges again when a threshold is moved, as plain JSON for `templates/judging.js`.

The page applies the rules of `walkback.judge` to them. Everything that needs a distribution is computed here: intervals
at the levels that Holm's correction asks for, and the outcomes of the alignment claim between the values of `null_z` at
which it changes. What is left are comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from walkback.core.measurements import GROUP
from walkback.judge.audit_table import AuditRow, AuditTable, is_reference
from walkback.judge.claim import CHECKPOINT, Claim, ClaimOutcome
from walkback.judge.depth_claim import margin_words
from walkback.judge.editions import EDITIONS
from walkback.judge.headline import CLAIMED
from walkback.judge.quantities import FITTED_ERROR
from walkback.judge.rejudging import StoredMargin
from walkback.judge.statistics import NATS, Margin
from walkback.report.cells import tidy
from walkback.report.sections import Card

SLIDERS: dict[str, tuple[str, list[float]]] = {
    "h_norm_explosion_ratio": ("Growth (D1) fails above", [float(f"{10 ** (k / 20):.3g}") for k in range(2, 81)]),
    "g_norm_floor": ("Reference (D2) fails under", [float(f"{10 ** (k / 10 - 12):.2g}") for k in range(101)]),
    "frozen_acc_margin_pp": ("Depth needs, in pp", [k / 10 for k in range(-20, 151)]),
    "frozen_loss_margin_nats": ("Depth needs, in nats a token", [k / 200 for k in range(-20, 101)]),
    "null_z": ("Alignment needs, in sd of its null", [k / 10 for k in range(10, 61)]),
}
"""The thresholds that can be moved: what they mean, and the values of their sliders."""
_LINES = {NATS: "frozen_loss_margin_nats", "pp": "frozen_acc_margin_pp"}
_FIXED_ROWS = ("frozen", "no baseline", "not finite", "chance", "no interval")
"""The rows of the depth claim that come before any margin is compared."""


def can_be_judged_again(cards: Sequence[Card]) -> bool:
    """Whether all cards have the numbers; those of older versions do not."""
    return all("rejudging" in card for card in cards)


def judging_data(table: AuditTable) -> dict[str, Any]:
    """The document in the page."""
    audited = sum(not is_reference(row.method) for row in table.rows)
    cards = [card for row in table.rows for card in row.cards]
    units = {card["statistics"]["unit"] for card in cards}
    used = [name for name in SLIDERS if name not in _LINES.values() or name in {_LINES[unit] for unit in units}]
    thresholds = cards[0]["thresholds"]
    return {
        "edition": table.protocol,
        "editions": {
            name: {"terms": rules.terms, "skips_depth": rules.skips_depth, "excuses_fitted": rules.excuses_fitted}
            for name, rules in EDITIONS.items()
        },
        "thresholds": {name: thresholds[name] for name in used},
        "sliders": {name: SLIDERS[name][1] for name in used},
        "rows": [_row(row, audited) for row in table.rows],
    }


def _row(row: AuditRow, audited: int) -> dict[str, Any]:
    return {
        "audited": not is_reference(row.method),
        "claims_alignment": "alignment" in row.cards[0].get("claimed", CLAIMED),
        "claims": {name: _claim(row.claims[name]) for name in ("depth", "alignment")},
        "seeds": [_seed(card, max(audited, 1)) for card in row.cards],
    }


def _claim(claim: Claim) -> dict[str, str]:
    """A claim as the page shows it."""
    return {"outcome": claim.outcome, "shown": claim.shown, "reason": tidy(claim.reason)}


def _seed(card: Card, audited: int) -> dict[str, Any]:
    stored = card["rejudging"]
    checks = {check["id"]: check for check in card["checks"]}
    claim = card["claim"]
    baselines = (claim.get("losses") or claim)["frozen"]
    return {
        "growth": {"value": stored["growth"], "infinite": stored["growth_infinite"], "all": stored["growth_complete"]},
        "reference": {"value": checks["D2"]["value"], "fitted_up_to": _fitted_up_to(card["measured"])},
        "line": _LINES[card["statistics"]["unit"]],
        "margin": None if checks["D3"]["shown"] == "NOT INFORMATIVE" else checks["D3"]["value"],
        "baseline": bool(baselines),
        "not_finite": bool(stored["not_finite"]),
        "withheld": bool(stored["withheld"]),
        "depth": _depth(card, audited),
        "alignment": [
            {"from": step["null_z"], **_claim(Claim("alignment", step["outcome"], step["reason"], step["name"]))}
            for step in stored["alignment"]
        ],
    }


def _fitted_up_to(measured: Mapping[str, Any]) -> float:
    """The largest floor at which a small error explains a small gradient (`Quantities.is_fitted`); 0 if it never
    does."""
    error, ratio = measured["error_norm"], measured["grad_over_error"]
    if error["status"] != "ok" or error["value"] > FITTED_ERROR:
        return 0.0
    if error["value"] == 0:
        return 1e300
    return float(ratio["value"] / GROUP) if ratio["status"] == "ok" else 0.0


def _depth(card: Card, audited: int) -> dict[str, Any]:
    """The depth claim: fixed, or the intervals that it is read off."""
    found = Claim.from_json(card["claims"]["depth"])
    stored = card["rejudging"]["margin"]
    if found.row in _FIXED_ROWS or stored is None:
        return {"fixed": _claim(found)}
    margin, confidence = StoredMargin.from_json(stored), card["thresholds"]["confidence"]
    assert margin.interval is not None, "a margin without an interval is fixed"
    levels = [margin.interval, *(margin.interval_at(1 - (1 - confidence) / k) for k in range(2, audited + 1))]
    gate = card["rejudging"]["gate"]
    plain = Margin(margin.mean, margin.n, margin.counts, margin.sd, margin.interval, unit=margin.unit)
    return {
        "unit": margin.unit,
        "levels": levels,
        "gate": gate and gate["interval"],
        "margin": tidy(margin_words(plain, confidence)),
        "shown": {outcome: _shown(outcome, plain.is_of_one_seed) for outcome in _OUTCOMES},
    }


_OUTCOMES: tuple[ClaimOutcome, ...] = ("stands", "walked_back", "not_informative", "inconclusive")


def _shown(outcome: ClaimOutcome, one_seed: bool) -> str:
    scope = CHECKPOINT if one_seed and outcome in ("stands", "walked_back") else ""
    return Claim("depth", outcome, "", "no margin", scope=scope).shown
