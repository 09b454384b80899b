"""A "how we measured" text for a paper and the reporting checklist, both filled in from cards.

Every number comes from a card and is formatted as on the card. What no card contains is marked [TODO], for the author
to fill in.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from walkback.judge.card import read_card
from walkback.judge.checklist import TODO
from walkback.report import latex, markdown
from walkback.report.captions import described_recipe, optimiser_text, schedule_text
from walkback.report.cells import counted, interval, maybe, plain_text
from walkback.report.sections import (
    FROZEN_BASELINE_NAMES,
    VERDICT_WORDS,
    Card,
    aggregate_cell,
    limit_text,
    measured_text,
    result_text,
    short_check_name,
)


@dataclass(frozen=True)
class Method:
    """One method on one network and data set: the texts filled in from the cards of its seeds."""

    title: str
    sentences: tuple[tuple[str, str], ...]
    """Pairs of a subject and its sentence."""
    checklist: tuple[tuple[str, str], ...]
    """Pairs of a question and its answer."""
    cards: tuple[str, ...]
    """The hashes of the cards it was filled in from."""

    @property
    def unknown(self) -> int:
        """The number of places an author has to fill in."""
        return sum(text.count(TODO) for _, text in (*self.sentences, *self.checklist))

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "how_we_measured": dict(self.sentences),
            "checklist": [{"question": question, "answer": answer} for question, answer in self.checklist],
            "unknown": self.unknown,
            "cards": list(self.cards),
        }


def reporting(cards: Sequence[Card], form: str) -> str:
    """The text and the checklist of every method among the cards, as `text`, `md`, `tex` or `json`."""
    return _FORMS[form](reported_methods(cards))


def reported_methods(cards: Sequence[Card]) -> list[Method]:
    """The methods among the cards; cards that differ in their seeds only belong to one method."""
    groups: dict[str, list[Card]] = {}
    for card in map(read_card, cards):
        claim = card["claim"]
        config = {k: v for k, v in (card["provenance"].get("config") or {}).items() if k != "seed"}
        key = json.dumps([claim["method"], claim["arch"], claim["data"], claim["digest"], config], sort_keys=True)
        groups.setdefault(key, []).append(card)
    return [_method(group) for group in groups.values()]


def _method(cards: Sequence[Card]) -> Method:
    claim = cards[0]["claim"]
    sentences = [(subject, _over_seeds(cards, write)) for subject, write in SENTENCES.items()]
    questions = dict.fromkeys(item["question"] for card in cards for item in card["checklist"])
    answers = [(question, _over_seeds(cards, lambda card, q=question: answer(card, q))) for question in questions]  # type: ignore[misc]
    hashes = tuple(card["hash"] for card in cards)
    return Method(f"{claim['method']}, {claim['arch']}, {claim['data']}", tuple(sentences), tuple(answers), hashes)


def _over_seeds(cards: Sequence[Card], write: Callable[[Card], str]) -> str:
    """The text that `write` makes of every card: once where all agree, by seed where they differ."""
    texts = [write(card) for card in cards]
    if len(set(texts)) == 1:
        return texts[0]
    return " ".join(f"Seed {_known(card['claim']['seed'])}: {text}" for card, text in zip(cards, texts, strict=True))


def answer(card: Card, question: str) -> str:
    """The card's answer, or [TODO] for an older card without this question."""
    return next((item["answer"] for item in card["checklist"] if item["question"] == question), TODO)


def _known(value: Any) -> str:
    return TODO if value is None or value == "" else plain_text(value)


def _method_sentence(card: Card) -> str:
    return f"{card['claim']['method']}, credit applied at each block's {_known(card['measured']['site'])}."


def _network(card: Card) -> str:
    m = card["measured"]
    return f"{card['claim']['arch']}: {m['layers']} hidden states h_0 to h_{m['layers'] - 1}."


def _data(card: Card) -> str:
    return f"{card['claim']['data']}, sha256 {card['claim']['digest']}."


def _training(card: Card) -> str:
    config = card["provenance"].get("config") or {}
    weights = f"Final-epoch weights: {answer(card, 'Final-epoch weights, never the best epoch on test data?')}."
    if described := described_recipe(card):
        return f"{_known(described)}. {weights}"
    if not config:
        return f"{TODO} (epochs, batch, optimiser, learning rate, augmentation). {weights}"
    names = {"lr": "learning rate", "weight_decay": "weight decay", "augment": "augmentation"}
    settings = [f"{name} {_known(config.get(key))}" for key, name in names.items()]
    length = f"{_known(config.get('epochs'))} epochs, batch {_known(config.get('batch'))}"
    recipe = f"{length}, {optimiser_text(config)} with a {schedule_text(config)} schedule, {', '.join(settings)}"
    return f"{recipe}.{_tuning(card)} {weights}"


def _tuning(card: Card) -> str:
    """How the learning rate was chosen, where the card says it."""
    found = card["provenance"].get("tuning")
    if not found:
        return ""
    tried = ", ".join(f"{rate:g}" for rate in found["learning_rates_tried"])
    edge = " It is at an edge of that grid." if card["claim"]["method"] in found["at_edge"] else ""
    return (
        f" The learning rate is the best of {tried} on the {found['held_out']:.0%} of the training samples that were "
        f"held out for it (seeds {', '.join(map(str, found['seeds']))}), and so are those of backprop and of every "
        f"frozen baseline.{edge}"
    )


def _seeds(card: Card) -> str:
    claim = card["claim"]
    accuracies = claim["headline_acc"]
    if not accuracies:
        return f"Seeds {TODO}, n = {TODO}; test accuracy {TODO}."
    seeds = ", ".join(map(str, claim["seeds"])) or TODO
    return f"Seeds {seeds} (n = {len(accuracies)}); test accuracy {_spread(accuracies)}."


def _spread(values: Sequence[float]) -> str:
    """Mean and standard deviation (ddof = 1); a single value has none."""
    if len(values) < 2:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ± {stdev(values):.3f} (standard deviation, ddof = 1)"


def _statistics(card: Card) -> str:
    s = card["statistics"]
    if s["mean"] is None:
        return f"Margin over the frozen baseline: {TODO}."
    return (
        f"Margin over the frozen baseline {maybe(s['mean'], '+.2f', s['unit'])}, {s['confidence']:.0%} interval "
        f"{interval(s['interval'], '+.2f', s['unit'])}; {counted(s['n'], s['counts'])}, "
        f"{s['pairing'] if s['pairing'].startswith('by') else 'not paired'}, ddof = {s['ddof']}; minimum detectable "
        f"margin {maybe(s['minimum_detectable_margin'], '.2f', s['unit'])}."
    )


def _conventions(card: Card) -> str:
    return (
        "Norms are means of per-sample L2 norms in float64. Gradients are quoted @128: those of the mean loss of a "
        "batch of 128, whatever batch they were measured with. Cosines are per sample, without a clamp "
        f"({answer(card, 'Cosines without a clamp, with excluded samples counted?')}). "
        f"One frozen pass for reference and credit: "
        f"{answer(card, 'Reference and credit from one frozen forward pass, in evaluation mode?')}."
    )


def _precision(card: Card) -> str:
    m = card["measured"]
    replay = answer(card, "Direction of the reference checked in float64?")
    return f"{_known(m['dtype'])}, pool {_known(m['pool'])}. Deepest reference replayed in float64: {replay}."


def _samples(card: Card) -> str:
    m = card["measured"]
    return (
        f"{m['samples']} evaluation samples in {m['groups']} disjoint groups of 128, sha256 {_known(m['sample_hash'])}."
    )


def _alignment(card: Card) -> str:
    cells = {name: aggregate_cell(name, number) for name, number in card["aggregates"].items()}
    shown = [f"{name} {cells[name].text}" for name in ("A1", "A2", "A3", "A4", "deep_mean")]
    counted_layers = answer(card, "Which aggregation over layers, and are exact layers counted?")
    return f"Aggregate cosine Γ: {', '.join(shown)}. {counted_layers}."


def _nulls(card: Card) -> str:
    rotated, fresh = (aggregate_cell(name, card["aggregates"][name]) for name in ("deep_mean_z", "deep_mean_fresh_z"))
    return (
        f"deep_mean against random rotations of the credit, z: {rotated.full}; against fresh feedback, z: {fresh.full}."
    )


def _baselines(card: Card) -> str:
    claim = card["claim"]
    frozen = [(name, values) for name, values in claim["frozen"].items() if values]
    texts = [f"{FROZEN_BASELINE_NAMES[name]} ({name}) {_spread(values)}" for name, values in frozen]
    baselines = "; ".join(texts) or f"frozen baseline {TODO}"
    bp = _spread(claim["bp_acc"]) if claim["bp_acc"] else TODO
    decides = f" {claim['null']} decides." if claim["frozen"] else ""
    return f"{baselines}; backprop {bp}.{decides}"


def _checks(card: Card) -> str:
    texts = [
        f"{short_check_name(check)} {measured_text(check)} (fails if {limit_text(check)}): {result_text(check)}"
        for check in card["checks"]
    ]
    return f"{'; '.join(texts)}."


def _verdicts(card: Card) -> str:
    verdicts = [
        f"{name}: {VERDICT_WORDS[found['verdict']].lower()} ({found['sentence']})"
        for name, found in card["verdicts"].items()
    ]
    claims = [f"{name} {found['shown']}" for name, found in card["claims"].items()]
    return f"Edition {'; edition '.join(verdicts)}. Claims: {'; '.join(claims)}. A verdict certifies no method."


def _tool(card: Card) -> str:
    rerun = f" To re-run: {' && '.join(card['rerun'])}" if card["rerun"] else ""
    return f"walkback {card['walkback']}, card {card['hash']}.{rerun}"


SENTENCES: Mapping[str, Callable[[Card], str]] = {
    "Method": _method_sentence,
    "Network": _network,
    "Data": _data,
    "Training": _training,
    "Seeds": _seeds,
    "Statistics": _statistics,
    "Conventions": _conventions,
    "Precision": _precision,
    "Samples": _samples,
    "Alignment": _alignment,
    "Nulls": _nulls,
    "Baselines": _baselines,
    "Checks": _checks,
    "Verdicts": _verdicts,
    "Tool": _tool,
}
"""Functions that write the sentences, by subject, in the order of the text."""


def _text(methods: Sequence[Method]) -> str:
    lines: list[str] = []
    for method in methods:
        lines += [method.title, "", "How we measured"]
        lines += [f"  {subject}: {text}" for subject, text in method.sentences]
        lines += ["", "Checklist"]
        lines += [f"  {question}\n    {text}" for question, text in method.checklist]
        lines += ["", f"{counted(method.unknown, 'places')} left to fill in, marked {TODO}.", ""]
    return "\n".join(lines)


def _markdown(methods: Sequence[Method]) -> str:
    lines: list[str] = []
    for method in methods:
        lines += [f"## How we measured: {markdown.markdown_escape(method.title)}", ""]
        lines += [f"- **{subject}**: {markdown.markdown_escape(text)}" for subject, text in method.sentences]
        lines += ["", f"## Checklist: {markdown.markdown_escape(method.title)}", ""]
        lines += [
            f"- **{markdown.markdown_escape(question)}**: {markdown.markdown_escape(text)}"
            for question, text in method.checklist
        ]
        lines += [""]
    return "\n".join(lines)


def _latex(methods: Sequence[Method]) -> str:
    lines = [r"% Needs \usepackage[T1]{fontenc}.", r"\begingroup\sloppy"]
    for method in methods:
        lines += [rf"\subsection*{{How we measured: {latex.breakable(method.title)}}}"]
        lines += [rf"\textbf{{{subject}.}} {latex.breakable(text)}\par" for subject, text in method.sentences]
        lines += [rf"\subsection*{{Checklist: {latex.breakable(method.title)}}}", r"\begin{itemize}"]
        lines += [rf"\item \textbf{{{latex.breakable(q)}}} {latex.breakable(text)}" for q, text in method.checklist]
        lines += [r"\end{itemize}"]
    return "\n".join([*lines, r"\endgroup"]) + "\n"


def _json(methods: Sequence[Method]) -> str:
    return json.dumps([method.to_json() for method in methods], indent=1, allow_nan=False) + "\n"


_FORMS: dict[str, Callable[[Sequence[Method]], str]] = {
    "text": _text,
    "md": _markdown,
    "tex": _latex,
    "json": _json,
}
