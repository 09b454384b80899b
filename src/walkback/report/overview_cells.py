"""The cells of one method's row: its numbers over seeds, and no number without what was said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from walkback.judge.audit_table import AuditRow, EditionRuling
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL, UNNAMED
from walkback.judge.statistics import paired_margin
from walkback.report.cells import Cell, interval, number_text
from walkback.report.sections import VERDICT_WORDS, Card

CLAIMS = ("alignment", "depth")


def cells_of(row: AuditRow, named: bool) -> tuple[Cell, ...]:
    """In the order of the table's columns."""
    # Accuracies and their margin are over all seeds and the same on each seed's card.
    card = row.cards[0]
    claim, frozen = card["claim"], card["claim"]["frozen"]
    seeds = len(claim["headline_acc"])
    deep = _mean_number([card["aggregates"]["deep_mean"] for card in row.cards])
    return (
        Cell(f"{row.method} ({row.place})" if named else row.method),
        Cell(str(seeds), seeds),
        _mean(claim["headline_acc"]),
        _mean(frozen.get("method_shell")) if "unnamed" not in frozen else _unnamed(frozen["unnamed"]),
        _mean(frozen.get("bp_shell")),
        _over(card, METHOD_SHELL),
        _over(card, BP_SHELL),
        _over_seeds([_check(card, "D1") for card in row.cards]),
        _over_seeds([_check(card, "D2") for card in row.cards]),
        deep,
        _scores([card["aggregates"]["deep_mean_z"] for card in row.cards], deep.reason),
        *(_ruled(ruling) for ruling in row.rulings.values()),
        *(Cell(row.claims[name].shown) for name in CLAIMS),
    )


def _check(card: Card, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(check for check in card["checks"] if check["id"] == name)
    return found


def _over_seeds(checks: Sequence[Mapping[str, Any]]) -> Cell:
    """One check in every seed: the range of its values, and in how many it is raised."""
    cells = [_checked(check) for check in checks]
    bad = [cell for cell in cells if cell.value is None]
    if len(cells) == 1 or bad:
        return (bad or cells)[0]
    values = [check["value"] for check in checks]
    raised = sum(check["shown"] == "FAIL" for check in checks)
    ends = list(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))
    word = f" FAIL in {raised} of {len(cells)}" if raised else ""
    worst_value = max(values) if checks[0]["side"] == "above" else min(values)
    return Cell(" to ".join(ends) + word, worst_value)


def _mean_number(given: Sequence[Mapping[str, Any]]) -> Cell:
    cells = [number_text(each, "+.3f") for each in given]
    bad = [cell for cell in cells if cell.value is None]
    if len(cells) == 1 or bad:
        return (bad or cells)[0]
    values = [each["value"] for each in given]
    return Cell(f"{fmean(values):+z.3f} ± {stdev(values):.3f}", fmean(values), cells[0].reason)


def _scores(given: Sequence[Mapping[str, Any]], said: str) -> Cell:
    """The smallest to the largest score: each seed's must pass. A reason that was just `said` is not repeated."""
    bad = [number_text(each, ".1f") for each in given if each["status"] != "ok"]
    if bad:
        return Cell(bad[0].text, None, "" if bad[0].reason == said else bad[0].reason)
    values = [each["value"] for each in given]
    ends = dict.fromkeys(f"{value:z.1f}" for value in (min(values), max(values)))
    return Cell(" to ".join(ends), min(values))


def _ruled(ruling: EditionRuling) -> Cell:
    by = f" ({', '.join(ruling.decided_by)})" if ruling.decided_by else ""
    share = "" if ruling.like == ruling.seeds else f" in {ruling.like} of {ruling.seeds} seeds"
    return Cell(f"{VERDICT_WORDS[ruling.outcome]}{by}{share}")


def _mean(seeds: Sequence[float] | None) -> Cell:
    if not seeds:
        return Cell("not given")
    spread = f" ± {stdev(seeds):.3f}" if len(seeds) > 1 else ""
    return Cell(f"{fmean(seeds):.3f}{spread}", fmean(seeds))


def _unnamed(seeds: Sequence[float]) -> Cell:
    given = _mean(seeds)
    return Cell(given.text, given.value, "it was not said which shell this is")


def _over(card: Card, null: str) -> Cell:
    """The margin over a shell; that over the one that decides carries what was said of it."""
    claim = card["claim"]
    if null == claim["null"] or (null == METHOD_SHELL and claim["null"] == UNNAMED):
        return _margin(card, _check(card, "D3"))
    if not claim["headline_acc"] or not claim["frozen"].get(null):
        return Cell("not given")
    found = paired_margin(claim["headline_acc"], claim["frozen"][null], card["statistics"]["confidence"])
    return Cell(f"{found.mean:+.2f}{_ends(found.interval)}", found.mean)


def _margin(card: Card, d3: Card) -> Cell:
    found = card["statistics"]
    if found["mean"] is None or d3["shown"] in ("INVALID", "NOT MEASURED"):
        return Cell("INVALID" if d3["shown"] == "INVALID" else "NOT MEASURED", None, d3["reason"])
    reason = d3["reason"] if d3["shown"] == "NOT INFORMATIVE" else ""
    return Cell(f"{found['mean']:+.2f}{_ends(found['interval'])}{_word(d3)}", found["mean"], reason)


def _ends(found: Sequence[float] | None) -> str:
    return f" {interval(found, '+.2f')}" if found else ""


def _checked(check: Mapping[str, Any]) -> Cell:
    if check["shown"] in ("INVALID", "NOT MEASURED"):
        return Cell(check["shown"], None, check["reason"])
    if check["value"] is None:
        return Cell(f"not finite{_word(check)}", None, check["reason"])
    return Cell(f"{check['value']:.3g}{_word(check)}", check["value"])


def _word(check: Mapping[str, Any]) -> str:
    """A number is not shown without what was said of it; where nothing is wrong there is nothing to say."""
    return "" if check["shown"] == "PASS" else f" {check['shown']}"
