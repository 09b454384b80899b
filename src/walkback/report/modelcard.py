"""A card as a section of a model card on the Hugging Face hub, with the metadata `model-index` above it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import yaml

from walkback.judge.checklist import TODO
from walkback.report.cards import view
from walkback.report.markdown import markdown_escape, markdown_table
from walkback.report.sections import Card

_SECTIONS = ("checks", "claims", "limits")


def modelcard(card: Card) -> str:
    """YAML metadata and a Markdown section; a model card of your own takes the first into its metadata."""
    shown = view(card)
    metadata = yaml.safe_dump(_metadata(card), sort_keys=False, allow_unicode=True)
    lines = ["---", metadata.rstrip("\n"), "---", "", "## Audit", ""]
    lines += [f"**{markdown_escape(shown.title)}: {shown.verdict_text}.** {markdown_escape(shown.explanation)}", ""]
    lines += [f"- {markdown_escape(line)}" for line in (*shown.summary_lines, shown.facts)]
    for name in _SECTIONS:
        lines += [f"#{line}" if line.startswith("## ") else line for line in markdown_table(shown.section(name))]
    lines += ["", f"Written by walkback {markdown_escape(shown.version)} from report.json, which has every number."]
    return "\n".join(lines) + "\n"


def _metadata(card: Card) -> dict[str, Any]:
    claim = card["claim"]
    # On one line each, so that no name can end the metadata.
    names = [" ".join(claim[key].split()) for key in ("method", "arch") if claim[key] != TODO]
    data = "unknown" if claim["data"] == TODO else " ".join(claim["data"].split())
    result = {
        "task": {"type": _task(card)},
        "dataset": {"type": data, "name": data},
        "metrics": _metrics(card),
    }
    return {"model-index": [{"name": " on ".join(names) or "model", "results": [result]}]}


def _task(card: Card) -> str:
    """The hub's name of the task, where the card says enough to know it."""
    return "image-classification" if str(card["claim"]["data"]).startswith("cifar") else "other"


def _metrics(card: Card) -> list[dict[str, Any]]:
    """The headline, the frozen baseline it is compared with, and the verdict; the hub needs at least one."""
    claim, losses = card["claim"], card["claim"].get("losses")
    found: list[dict[str, Any]] = []
    if losses:
        found += _metric("loss", "Test loss (nats)", losses["headline"])
    found += _metric("accuracy", "Test accuracy", claim["headline_acc"])
    frozen = (claim["frozen"] or {}).get(claim["null"]) or ()
    found += _metric("frozen-baseline-accuracy", "Test accuracy with blocks frozen at random", frozen)
    edition = f"Verdict (edition {card['protocol']})"
    return [*found, {"type": "walkback-verdict", "name": edition, "value": card["verdict"]}]


def _metric(kind: str, name: str, values: Sequence[float]) -> list[dict[str, Any]]:
    seeds = f", mean of {len(values)} seeds" if len(values) > 1 else ""
    return [{"type": kind, "name": f"{name}{seeds}", "value": fmean(values)}] if values else []
