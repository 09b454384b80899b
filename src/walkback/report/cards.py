"""What a card shows, as strings in sections; the formats lay out these strings and format no number themselves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from walkback.judge.card import read_card
from walkback.report import sections as make
from walkback.report.cells import accuracies, size
from walkback.report.sections import VERDICT_WORDS, Card, LayerView, Section


@dataclass(frozen=True)
class View:
    """A whole card as strings, ready for layout."""

    title: str
    verdict: str
    verdict_text: str
    explanation: str
    """What the verdict is about, in a sentence."""
    summary_lines: tuple[str, ...]
    """What must be read with the verdict: every check's result, and editions with another verdict."""
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
    chain = ((step["question"], _said_once(card, step["answer"])) for step in card["chain"])
    modes = ((f"{m['id']} {m['name']}", _said_once(card, m["reason"])) for m in card["modes"])
    sections = (
        make.claims_section(card["claims"]),
        make.checks_section(card["checks"], card["thresholds"]["confidence"]),
        make.layers_section(card["layers"], layers),
        *([make.blocks_section(card["blocks"])] if card.get("blocks") else []),
        make.pairs_section("claim", "What was audited", make.claim_rows(card)),
        make.pairs_section("chain", "Walk-back chain", chain),
        make.pairs_section("modes", "Failure modes", modes),
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
        floor_text=size(floor),
        band_text=f"{card['thresholds']['null_z']:g}",
        layers=layers,
        sections=tuple(section for section in sections if section.rows),
        numbers=tuple(_numbers(card)),
    )


def _explanation(card: Card) -> str:
    """What the verdict is about; the reasons stand beside the claims and the checks."""
    decided = card["verdicts"][card["protocol"]]["decided_by"]
    word = VERDICT_WORDS[card["verdict"]].lower()
    said: str = card["sentence"].removeprefix(word).removeprefix(":").strip()
    if card["verdict"] == "trustworthy":
        return f"The rule of edition {card['protocol']} finds no failure in these checks. {said}".strip()
    if not decided:
        return said or str(card["sentence"])
    named = [_named(card["claims"][name]) if name in card["claims"] else name for name in decided]
    leads = {"walked_back": "May not be claimed" if card["claims"].keys() >= set(decided) else "These checks fail"}
    return f"{leads.get(card['verdict'], 'Not decided')}: {', '.join(named)}."


def _named(claim: Card) -> str:
    """A claim and what walks it back."""
    details = {"walked_back": claim["name"], "inconclusive": ""}
    detail = details.get(claim["outcome"], claim["shown"])
    return f"{claim['question']} ({detail})" if detail else str(claim["question"])


def _summary_lines(card: Card) -> tuple[str, ...]:
    """Checks and differing editions, shown with the verdict so that it hides no check that fails."""
    others = [
        f"Edition {name} concludes otherwise: {VERDICT_WORDS[found['verdict']]}."
        for name, found in card["verdicts"].items()
        if found["verdict"] != card["verdict"]
    ]
    checks = ", ".join(f"{make.short_check_name(check)} {make.result_text(check)}" for check in card["checks"])
    return (f"Checks: {checks}.", *others)


def _said_once(card: Card, text: str) -> str:
    """The text with reasons that stand beside a check or a claim replaced by their names."""
    reasons = [(check["reason"], make.short_check_name(check)) for check in card["checks"]]
    reasons += [(claim["reason"], f"the {name} claim") for name, claim in card["claims"].items()]
    for reason, name in sorted(reasons, key=lambda pair: -len(pair[0])):
        text = text.replace(reason, f"see {name}")
    return text


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
