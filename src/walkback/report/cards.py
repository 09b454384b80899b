"""What a card shows, as strings in sections; every format lays out these and formats no number of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walkback.judge.card import read_card
from walkback.report import sections as parts
from walkback.report.cells import accuracies
from walkback.report.sections import VERDICT_WORDS, Card, LayerView, Section


@dataclass(frozen=True)
class View:
    """A whole card, ready to be laid out."""

    title: str
    verdict: str
    word: str
    why: str
    beside: tuple[str, ...]
    """What must be read with the verdict: every check's result, the claims, editions that differ."""
    facts: str
    """What was audited, in a line."""
    version: str
    floor: float
    floor_text: str
    band_text: str
    layers: tuple[LayerView, ...]
    sections: tuple[Section, ...]
    numbers: tuple[tuple[str, str], ...]
    """Names and texts, for quoting in a paper."""

    def section(self, name: str) -> Section:
        return next(section for section in self.sections if section.id == name)


def view(card: Card) -> View:
    """Everything the card shows; a damaged card is refused."""
    card = read_card(card)
    layers = tuple(parts.layer_view(layer, card["thresholds"]["null_z"]) for layer in card["layers"])
    floor = next(check["threshold"] for check in card["checks"] if check["id"] == "D2")
    floor = card["thresholds"]["g_norm_floor"] if floor is None else floor
    sections = (
        parts.pairs("claim", "The claim", parts.claim_rows(card)),
        parts.checks(card["checks"], card["thresholds"]["confidence"]),
        parts.layers(card["layers"], layers),
        parts.claims(card["claims"]),
        parts.pairs("chain", "Walk-back chain", ((step["question"], step["answer"]) for step in card["chain"])),
        parts.pairs("modes", "Failure modes", ((f"{m['id']} {m['name']}", m["reason"]) for m in card["modes"])),
        parts.aggregate_rows(card["aggregates"]),
        parts.pairs("statistics", "Statistics", parts.statistics_rows(card["statistics"])),
        Section("limits", "Limits", "list", tuple((line,) for line in card["limits"])),
        parts.pairs("checklist", "Checklist", ((item["question"], item["answer"]) for item in card["checklist"])),
        parts.pairs("provenance", "Provenance", parts.provenance_rows(card)),
        Section("rerun", "How to re-run", "commands", tuple((line,) for line in card["rerun"])),
    )
    return View(
        title=card["claim"]["method"],
        verdict=card["verdict"],
        word=VERDICT_WORDS[card["verdict"]],
        why=_why(card),
        beside=_beside(card),
        facts=", ".join(
            f"{name} {text}" for name, text in parts.claim_rows(card) if name in ("architecture", "data", "accuracy")
        ),
        version=card["walkback"],
        floor=floor,
        floor_text=f"{floor:g}",
        band_text=f"{card['thresholds']['null_z']:g}",
        layers=layers,
        sections=tuple(section for section in sections if section.rows),
        numbers=tuple(_numbers(card)),
    )


def _why(card: Card) -> str:
    """The card's sentence without the verdict's own words, which stand above it."""
    word = VERDICT_WORDS[card["verdict"]].lower()
    why: str = card["sentence"].removeprefix(word).removeprefix(":").strip()
    if card["verdict"] == "trustworthy" and (not why or why.startswith("(")):
        why = f"The rule of edition {card['protocol']} does not fail on these checks. {why}".strip()
    return why or str(card["sentence"])


def _beside(card: Card) -> tuple[str, ...]:
    """A verdict in large letters must not hide a check that failed or a claim that fell."""
    others = [
        f"Edition {name} concludes otherwise: {VERDICT_WORDS[found['verdict']]}."
        for name, found in card["verdicts"].items()
        if found["verdict"] != card["verdict"]
    ]
    checks = ", ".join(f"{check['id']} {check['shown']}" for check in card["checks"])
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
        told = parts.measured(check)
        # Quoted alone, a word in a number's place needs its reason beside it.
        known = check["value"] is not None and told != check["shown"]
        yield check["id"], told if known else f"{told} ({check['reason']})"
        yield f"{check['id']}_limit", parts.limit(check)
        yield f"{check['id']}_result", check["shown"]
    for name, given in card["aggregates"].items():
        yield f"Align_{name}", parts.aggregate(name, given).full
    for name, found in card["claims"].items():
        yield f"Claim_{name}", found["shown"]
