"""The cells of one method's row in the overview: its numbers over seeds, each with its check's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from walkback.judge.audit_table import AuditRow, EditionRuling
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL, UNNAMED
from walkback.judge.statistics import PERCENTAGE_POINTS, loss_margin, paired_margin
from walkback.report.cells import Cell, interval, number_text
from walkback.report.sections import VERDICT_WORDS, Card, result_text

CLAIMS = ("alignment", "depth", "credit")


def cells_of(row: AuditRow, named: bool) -> tuple[Cell, ...]:
    """The cells in the order of the table's columns; `named` adds the network and the data set to the method."""
    # Accuracies and their margin are over all seeds, so every seed's card has the same.
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
        _margin_over(card, METHOD_SHELL),
        _margin_over(card, BP_SHELL),
        _over_seeds([_check(card, "D1") for card in row.cards]),
        _over_seeds([_check(card, "D2") for card in row.cards]),
        deep,
        _scores([card["aggregates"]["deep_mean_z"] for card in row.cards], deep.reason),
        *(_verdict(ruling) for ruling in row.rulings.values()),
        *(Cell(row.claims[name].shown if name in row.claims else "not made") for name in CLAIMS),
    )


def _check(card: Card, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(check for check in card["checks"] if check["id"] == name)
    return found


def _over_seeds(checks: Sequence[Mapping[str, Any]]) -> Cell:
    """One check in every seed: the range of its values, and in how many seeds it fails."""
    cells = [_check_cell(check) for check in checks]
    bad = [cell for cell in cells if cell.value is None]
    if len(cells) == 1 or bad:
        return (bad or cells)[0]
    values = [check["value"] for check in checks]
    failing = sum(check["shown"] == "FAIL" for check in checks)
    ends = list(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))
    word = f" fails in {failing} of {len(cells)}" if failing else ""
    worst_value = max(values) if checks[0]["side"] == "above" else min(values)
    return Cell(" to ".join(ends) + word, worst_value)


def _mean_number(numbers: Sequence[Mapping[str, Any]]) -> Cell:
    """Mean ± standard deviation of a stored number over seeds; a word where a seed has none."""
    cells = [number_text(number, "+.3f") for number in numbers]
    bad = [cell for cell in cells if cell.value is None]
    if len(cells) == 1 or bad:
        return (bad or cells)[0]
    values = [number["value"] for number in numbers]
    return Cell(f"{fmean(values):+z.3f} ± {stdev(values):.3f}", fmean(values), cells[0].reason)


def _scores(numbers: Sequence[Mapping[str, Any]], shown_reason: str) -> Cell:
    """The smallest to the largest z over seeds, since each must pass; a reason equal to `shown_reason` is left out."""
    bad = [number_text(number, ".1f") for number in numbers if number["status"] != "ok"]
    if bad:
        return Cell(bad[0].text, None, "" if bad[0].reason == shown_reason else bad[0].reason)
    values = [number["value"] for number in numbers]
    ends = dict.fromkeys(f"{value:z.1f}" for value in (min(values), max(values)))
    return Cell(" to ".join(ends), min(values))


def _verdict(ruling: EditionRuling) -> Cell:
    """An edition's verdict with the checks that decided it, and in how many seeds."""
    by = f" ({', '.join(ruling.decided_by)})" if ruling.decided_by else ""
    share = "" if ruling.agreeing_seeds == ruling.seeds else f" in {ruling.agreeing_seeds} of {ruling.seeds} seeds"
    return Cell(f"{VERDICT_WORDS[ruling.outcome]}{by}{share}")


def _mean(seeds: Sequence[float] | None) -> Cell:
    if not seeds:
        return Cell("not given")
    spread = f" ± {stdev(seeds):.3f}" if len(seeds) > 1 else ""
    return Cell(f"{fmean(seeds):.3f}{spread}", fmean(seeds))


def _unnamed(seeds: Sequence[float]) -> Cell:
    mean = _mean(seeds)
    return Cell(mean.text, mean.value, "the kind of this frozen baseline was not given")


def _margin_over(card: Card, null: str) -> Cell:
    """The margin over one frozen baseline; the margin that decides D3 is shown with D3's result."""
    claim = card["claim"]
    if null == claim["null"] or (null == METHOD_SHELL and claim["null"] == UNNAMED):
        return _deciding_margin(card, _check(card, "D3"))
    losses = claim.get("losses")
    ours, theirs = (losses["headline"], losses["frozen"]) if losses else (claim["headline_acc"], claim["frozen"])
    if not ours or not theirs.get(null):
        return Cell("not given")
    margin = (loss_margin if losses else paired_margin)(ours, theirs[null], card["statistics"]["confidence"])
    return Cell(_with_interval(margin.mean, margin.interval, margin.unit), margin.mean)


def _deciding_margin(card: Card, d3: Card) -> Cell:
    statistics = card["statistics"]
    if statistics["mean"] is None or d3["shown"] in ("INVALID", "NOT MEASURED"):
        return Cell("INVALID" if d3["shown"] == "INVALID" else "NOT MEASURED", None, d3["reason"])
    reason = d3["reason"] if d3["shown"] == "NOT INFORMATIVE" else ""
    text = _with_interval(statistics["mean"], statistics["interval"], statistics["unit"])
    return Cell(f"{text}{_result(d3)}", statistics["mean"], reason)


def _with_interval(mean: float, ends: Sequence[float] | None, unit: str) -> str:
    """A margin with its interval; the column is in percentage points, so another unit is named."""
    form, named = ("+.2f", "") if unit == PERCENTAGE_POINTS else ("+.3f", f" {unit}")
    return f"{mean:{form}}{f' {interval(ends, form)}' if ends else ''}{named}"


def _check_cell(check: Mapping[str, Any]) -> Cell:
    if check["shown"] in ("INVALID", "NOT MEASURED"):
        return Cell(check["shown"], None, check["reason"])
    if check["value"] is None:
        return Cell(f"not finite{_result(check)}", None, check["reason"])
    return Cell(f"{check['value']:.3g}{_result(check)}", check["value"])


def _result(check: Mapping[str, Any]) -> str:
    """The result shown after a number; empty where the check passes."""
    return "" if check["shown"] == "PASS" else f" {result_text(check)}"
