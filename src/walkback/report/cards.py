"""What a card shows, as strings in sections; the formats lay out these strings and format no number themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walkback.judge.card import read_card
from walkback.report import sections as make
from walkback.report.cells import accuracies
from walkback.report.sections import VERDICT_WORDS, Card, LayerView, Section


@dataclass(frozen=True)
class View:
    """A whole card as strings, ready for layout."""

    title: str
    verdict: str
    verdict_text: str
    explanation: str
    """Why the verdict was reached, in a sentence."""
    summary_lines: tuple[str, ...]
    """What must be read with the verdict: every check's result, the claims, and editions with another verdict."""
    facts: str
    """What was audited, in a line."""
    version: str
    floor: float
    floor_text: str
    band_text: str
    layers: tuple[LayerView, ...]
    sections: tuple[Section, ...]
    numbers: tuple[tuple[str, str], ...]
    """Names and texts of the numbers a paper may quote."""

    def section(self, name: str) -> Section:
        """The section with this id."""
        return next(section for section in self.sections if section.id == name)


def view(card: Card) -> View:
    """Everything the card shows; a damaged card is refused."""
    card = read_card(card)
    layers = tuple(make.layer_view(layer, card["thresholds"]["null_z"]) for layer in card["layers"])
    floor = next(check["threshold"] for check in card["checks"] if check["id"] == "D2")
    floor = card["thresholds"]["g_norm_floor"] if floor is None else floor
    sections = (
        make.pairs_section("claim", "The claim", make.claim_rows(card)),
        make.checks_section(card["checks"], card["thresholds"]["confidence"]),
        make.layers_section(card["layers"], layers),
        *([make.blocks_section(card["blocks"])] if card.get("blocks") else []),
        make.claims_section(card["claims"]),
        make.pairs_section("chain", "Walk-back chain", ((step["question"], step["answer"]) for step in card["chain"])),
        make.pairs_section("modes", "Failure modes", ((f"{m['id']} {m['name']}", m["reason"]) for m in card["modes"])),
        make.aggregates_section(card["aggregates"]),
        make.pairs_section("statistics", "Statistics", make.statistics_rows(card["statistics"])),
        Section("limits", "Limits", "list", tuple((line,) for line in card["limits"])),
        make.pairs_section(
            "checklist", "Checklist", ((item["question"], item["answer"]) for item in card["checklist"])
        ),
        make.pairs_section("provenance", "Provenance", make.provenance_rows(card)),
        Section("rerun", "How to re-run", "commands", tuple((line,) for line in card["rerun"])),
    )
    return View(
        title=card["claim"]["method"],
        verdict=card["verdict"],
        verdict_text=VERDICT_WORDS[card["verdict"]],
        explanation=_explanation(card),
        summary_lines=_summary_lines(card),
        facts=", ".join(
            f"{name} {text}" for name, text in make.claim_rows(card) if name in ("architecture", "data", "accuracy")
        ),
        version=card["walkback"],
        floor=floor,
        floor_text=f"{floor:g}",
        band_text=f"{card['thresholds']['null_z']:g}",
        layers=layers,
        sections=tuple(section for section in sections if section.rows),
        numbers=tuple(_numbers(card)),
    )


def _explanation(card: Card) -> str:
    """The card's sentence without the verdict at its start, which is shown above it."""
    word = VERDICT_WORDS[card["verdict"]].lower()
    text: str = card["sentence"].removeprefix(word).removeprefix(":").strip()
    if card["verdict"] == "trustworthy" and (not text or text.startswith("(")):
        text = f"The rule of edition {card['protocol']} finds no failure in these checks. {text}".strip()
    return text or str(card["sentence"])


def _summary_lines(card: Card) -> tuple[str, ...]:
    """Checks, claims and differing editions, shown with the verdict so that it hides no check that fails."""
    others = [
        f"Edition {name} concludes otherwise: {VERDICT_WORDS[found['verdict']]}."
        for name, found in card["verdicts"].items()
        if found["verdict"] != card["verdict"]
    ]
    checks = ", ".join(f"{make.short_check_name(check)} {make.result_text(check)}" for check in card["checks"])
    claims = "; ".join(f"{name} {claim['shown']}" for name, claim in card["claims"].items())
    return (f"Checks: {checks}.", f"Claims: {claims}.", *others)


def _numbers(card: Card) -> Iterable[tuple[str, str]]:
    claim = card["claim"]
    yield from (
        ("Verdict", VERDICT_WORDS[card["verdict"]]),
        ("Sentence", card["sentence"]),
        ("Method", claim["method"]),
    )
    yield from (("Arch", claim["arch"]), ("Data", claim["data"]), ("Accuracy", accuracies(claim["headline_acc"])))
    for name, values in claim["frozen"].items():
        yield f"Frozen_{name}", accuracies(values)
    for check in card["checks"]:
        text = make.measured_text(check)
        # These are quoted alone, so a word in a number's place needs its reason.
        known = check["value"] is not None and text != check["shown"]
        yield check["id"], text if known else f"{text} ({check['reason']})"
        yield f"{check['id']}_limit", make.limit_text(check)
        yield f"{check['id']}_result", make.result_text(check)
    for name, number in card["aggregates"].items():
        yield f"Align_{name}", make.aggregate_cell(name, number).full
    for name, found in card["claims"].items():
        yield f"Claim_{name}", found["shown"]
