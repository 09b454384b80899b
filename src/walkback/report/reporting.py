"""How something was measured, ready to be pasted into a paper, and the reporting checklist; both filled from cards.

Every number comes from a card, formatted as there. What no card knows stays [TODO]: it is for the author to say.
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
from walkback.report import sections as parts
from walkback.report.cells import counted, interval, maybe, plain_text
from walkback.report.sections import SHELL_NAMES, VERDICT_WORDS, Card


@dataclass(frozen=True)
class Method:
    """One method on one network and data set: what its cards say, over their seeds."""

    title: str
    sentences: tuple[tuple[str, str], ...]
    """What each is about, and the sentence."""
    checklist: tuple[tuple[str, str], ...]
    """Questions and answers."""
    cards: tuple[str, ...]
    """The hashes of the cards it was filled from."""

    @property
    def unknown(self) -> int:
        """Places an author has to fill in."""
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
    """The template and the checklist of every method among the cards, as `text`, `md`, `tex` or `json`."""
    return _FORMS[form](reported_methods(cards))


def reported_methods(cards: Sequence[Card]) -> list[Method]:
    """Cards of one method, network, data set and recipe belong together: they differ in their seeds."""
    groups: dict[str, list[Card]] = {}
    for card in map(read_card, cards):
        claim = card["claim"]
        config = {k: v for k, v in (card["provenance"].get("config") or {}).items() if k != "seed"}
        key = json.dumps([claim["method"], claim["arch"], claim["data"], claim["digest"], config], sort_keys=True)
        groups.setdefault(key, []).append(card)
    return [_method(group) for group in groups.values()]


def _method(cards: Sequence[Card]) -> Method:
    claim = cards[0]["claim"]
    sentences = [(about, _over(cards, say)) for about, say in SENTENCES.items()]
    questions = dict.fromkeys(item["question"] for card in cards for item in card["checklist"])
    answers = [(question, _over(cards, lambda card, q=question: answer(card, q))) for question in questions]  # type: ignore[misc]
    hashes = tuple(card["hash"] for card in cards)
    return Method(f"{claim['method']}, {claim['arch']}, {claim['data']}", tuple(sentences), tuple(answers), hashes)


def _over(cards: Sequence[Card], say: Callable[[Card], str]) -> str:
    """What all cards say; each by itself where they differ."""
    said = [say(card) for card in cards]
    if len(set(said)) == 1:
        return said[0]
    return " ".join(f"Seed {_known(card['claim']['seed'])}: {text}" for card, text in zip(cards, said, strict=True))


def answer(card: Card, question: str) -> str:
    """The card's answer; an older card may not have been asked."""
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
    if not config:
        return f"{TODO} (epochs, batch, optimiser, learning rate, augmentation). {weights}"
    names = {"lr": "learning rate", "weight_decay": "weight decay", "augment": "augmentation"}
    settings = [f"{name} {_known(config.get(key))}" for key, name in names.items()]
    length = f"{_known(config.get('epochs'))} epochs, batch {_known(config.get('batch'))}"
    return f"{length}, AdamW with a cosine schedule, {', '.join(settings)}. {weights}"


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
    named = {name: parts.aggregate(name, found) for name, found in card["aggregates"].items()}
    shown = [f"{name} {named[name].text}" for name in ("A1", "A2", "A3", "A4", "deep_mean")]
    return f"{', '.join(shown)}. {answer(card, 'Which aggregation over layers, and are exact layers counted?')}."


def _nulls(card: Card) -> str:
    turned, fresh = (parts.aggregate(name, card["aggregates"][name]) for name in ("deep_mean_z", "deep_mean_fresh_z"))
    return (
        f"deep_mean against random rotations of the credit, z: {turned.full}; against fresh feedback, z: {fresh.full}."
    )


def _baselines(card: Card) -> str:
    claim = card["claim"]
    said = [f"{SHELL_NAMES[name]} ({name}) {_spread(values)}" for name, values in claim["frozen"].items() if values]
    shells = "; ".join(said) or f"frozen blocks {TODO}"
    bp = _spread(claim["bp_acc"]) if claim["bp_acc"] else TODO
    decides = f" {claim['null']} decides." if claim["frozen"] else ""
    return f"{shells}; backprop {bp}.{decides}"


def _checks(card: Card) -> str:
    said = [
        f"{check['id']} {parts.measured(check)} (fails if {parts.limit(check)}): {check['shown']}"
        for check in card["checks"]
    ]
    return f"{'; '.join(said)}."


def _verdicts(card: Card) -> str:
    said = [
        f"{name}: {VERDICT_WORDS[found['verdict']].lower()} ({found['sentence']})"
        for name, found in card["verdicts"].items()
    ]
    claims = [f"{name} {found['shown']}" for name, found in card["claims"].items()]
    return f"Edition {'; edition '.join(said)}. Claims: {'; '.join(claims)}. A verdict certifies no method."


def _tool(card: Card) -> str:
    again = f" Again: {' && '.join(card['rerun'])}" if card["rerun"] else ""
    return f"walkback {card['walkback']}, card {card['hash']}.{again}"


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
"""What a reader asks of a measurement, in that order."""


def _text(methods: Sequence[Method]) -> str:
    lines: list[str] = []
    for method in methods:
        lines += [method.title, "", "How we measured"]
        lines += [f"  {about}: {text}" for about, text in method.sentences]
        lines += ["", "Checklist"]
        lines += [f"  {question}\n    {found}" for question, found in method.checklist]
        lines += ["", f"{counted(method.unknown, 'places')} left to fill in, marked {TODO}.", ""]
    return "\n".join(lines)


def _markdown(methods: Sequence[Method]) -> str:
    lines: list[str] = []
    for method in methods:
        lines += [f"## How we measured: {markdown.markdown_escape(method.title)}", ""]
        lines += [f"- **{about}**: {markdown.markdown_escape(text)}" for about, text in method.sentences]
        lines += ["", f"## Checklist: {markdown.markdown_escape(method.title)}", ""]
        lines += [
            f"- **{markdown.markdown_escape(question)}**: {markdown.markdown_escape(found)}"
            for question, found in method.checklist
        ]
        lines += [""]
    return "\n".join(lines)


def _latex(methods: Sequence[Method]) -> str:
    lines = [r"% Needs \usepackage[T1]{fontenc}.", r"\begingroup\sloppy"]
    for method in methods:
        lines += [rf"\subsection*{{How we measured: {latex.breakable(method.title)}}}"]
        lines += [rf"\textbf{{{about}.}} {latex.breakable(text)}\par" for about, text in method.sentences]
        lines += [rf"\subsection*{{Checklist: {latex.breakable(method.title)}}}", r"\begin{itemize}"]
        lines += [rf"\item \textbf{{{latex.breakable(q)}}} {latex.breakable(found)}" for q, found in method.checklist]
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
