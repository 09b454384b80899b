"""The card's sections: headings and rows of strings, with reasons below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from walkback.report.cells import EMPTY_CELL, Cell, accuracies, counted, flat, interval, maybe, number_text

Card = Mapping[str, Any]

VERDICT_WORDS = {"trustworthy": "TRUSTWORTHY", "walked_back": "NEEDS WALK-BACK", "inconclusive": "INCONCLUSIVE"}
SHELL_NAMES = {
    "method_shell": "frozen blocks, rest by the method",
    "bp_shell": "frozen blocks, rest by backprop",
    "unnamed": "frozen blocks, shell unnamed",
}
AGGREGATES = {
    "A1": "mean over layers",
    "A2": "one cosine per sample over all layers at once",
    "A3": "cosine of group means",
    "A4": "mean weighted by the size of the gradient",
    "deep_mean": "mean over layers that train a block, exact ones left out",
    "deep_mean_papers": "mean over l = 1..L, everything counted, as published",
    "deep_mean_z": "deep_mean in standard deviations of random rotations",
    "deep_mean_fresh_z": "deep_mean in standard deviations of fresh feedback",
    "concentration": "largest share of one layer",
}


@dataclass(frozen=True)
class Section:
    """A heading and rows of strings below it."""

    id: str
    title: str
    kind: Literal["table", "pairs", "list", "commands"]
    rows: tuple[tuple[str, ...], ...]
    heads: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    """Reasons, each with what it is about."""


@dataclass(frozen=True)
class LayerView:
    """One layer's numbers, for the strip."""

    index: int
    hidden: Cell
    grad: Cell
    replay: Cell
    credit: Cell
    band: float | None
    """Half the width of the credit's null."""
    label: str


def pairs(name: str, title: str, rows: Iterable[tuple[str, str]]) -> Section:
    return Section(name, title, "pairs", tuple(rows))


def claim_rows(card: Card) -> list[tuple[str, str]]:
    claim = card["claim"]
    rows = [("method", claim["method"]), ("architecture", claim["arch"]), ("data", claim["data"])]
    rows += [("data digest", claim["digest"]), *([("notes", claim["notes"])] if claim["notes"] else [])]
    rows.append(("accuracy", accuracies(claim["headline_acc"])))
    for name, values in claim["frozen"].items():
        deciding = ", decides D3" if name == claim["null"] else ""
        rows.append((SHELL_NAMES[name], f"{accuracies(values)} ({name}{deciding})"))
    rows += [("backprop accuracy", accuracies(claim["bp_acc"])), ("alignment (A1)", aligned(card).full)]
    for name, edition in card["verdicts"].items():
        by = f", decided by {', '.join(edition['decided_by'])}" if edition["decided_by"] else ""
        here = ", the verdict of this card" if name == card["protocol"] else ""
        rows.append((f"edition {name}", f"{VERDICT_WORDS[edition['verdict']]}{by}{here}"))
    return rows


def aligned(card: Card) -> Cell:
    return number_text(card["claim"]["alignment"], "+.3f")


def measured(check: Card) -> str:
    """The value; the word where there may be none; and a pointer where it is not finite."""
    if check["shown"] in ("INVALID", "NOT MEASURED"):
        return str(check["shown"])
    return "see reason" if check["value"] is None else maybe(check["value"], ".3g", check["unit"])


def limit(check: Card) -> str:
    return (
        EMPTY_CELL
        if check["threshold"] is None
        else f"{'>' if check['side'] == 'above' else '<'} {check['threshold']:g}"
    )


def checks(checks: Sequence[Card], confidence: float) -> Section:
    heads = ("check", "measured", f"{confidence:.0%} interval", "fails if", "result", "flips at", "n")
    rows, notes = [], []
    for check in checks:
        usable = check["shown"] not in ("INVALID", "NOT MEASURED")
        rows.append(
            (
                check["name"] if check["id"] in check["name"] else f"{check['id']} {check['name']}",
                measured(check),
                interval(check["interval"] if usable else None, ".3g"),
                limit(check),
                check["shown"],
                maybe(check["flips_at"] if usable else None, ".3g"),
                counted(check["n"], check["counts"]),
            )
        )
        extra = "" if check["decides"] else " (informs; decides no verdict)"
        notes.append((check["id"], f"{check['reason']}{extra}"))
    return Section("checks", "Checks", "table", tuple(rows), heads, tuple(notes))


def layer_view(layer: Card, null_z: float) -> LayerView:
    cos64, credit = layer["cos64"], layer["credit"]
    known = cos64 is not None and cos64["median"] is not None
    replay = (
        Cell(f"{cos64['median']:.4f}", cos64["median"])
        if known
        else Cell("NOT MEASURED", None, layer["direction"]["reason"])
    )
    null_std = None if credit is None else credit["null_std"]
    return LayerView(
        index=layer["layer"],
        hidden=number_text(layer["hidden_norm"], ".3g"),
        grad=number_text(layer["grad_norm_128"], ".3g"),
        replay=replay,
        credit=Cell("NOT MEASURED", None, "no credit was measured")
        if credit is None
        else number_text(credit["cos"], "+.3f"),
        band=None if null_std is None else null_z * null_std,
        label="none" if credit is None else credit["label"],
    )


def layers(stored: Sequence[Card], layers: Sequence[LayerView]) -> Section:
    heads = ("layer", "|h|", "|g| @128", "cos(g32, g64)", "direction", "clamp", "cosine", "null", "z", "label")
    rows = []
    reasons: dict[tuple[str, str], list[str]] = {}
    for raw, layer in zip(stored, layers, strict=True):
        z = Cell(EMPTY_CELL) if raw["credit"] is None else number_text(raw["credit"]["z"], ".1f")
        rows.append(
            (
                str(layer.index),
                layer.hidden.text,
                layer.grad.text,
                layer.replay.text,
                raw["direction"]["status"],
                raw["clamp"]["status"],
                layer.credit.text,
                EMPTY_CELL if layer.band is None else f"±{layer.band:.3f}",
                z.text,
                EMPTY_CELL if layer.label == "none" else layer.label,
            )
        )
        cells = {"|h|": layer.hidden, "|g|": layer.grad, "cos(g32, g64)": layer.replay, "cosine": layer.credit}
        cells |= {} if z.reason == layer.credit.reason else {"z": z}
        for name, cell in cells.items():
            if cell.reason:
                said = cell.reason if cell.value is not None else cell.full
                reasons.setdefault((name, said), []).append(str(layer.index))
    # The same reason often holds for many layers; it is given once.
    notes = tuple(
        (f"{name}, layer{'s' if len(at) > 1 else ''} {', '.join(at)}", said) for (name, said), at in reasons.items()
    )
    return Section("layers", "Layer by layer", "table", tuple(rows), heads, notes)


def aggregate(name: str, given: Card) -> Cell:
    return number_text(given, ".1f" if name.endswith("_z") else "+.3f" if name != "concentration" else ".3f")


def aggregate_rows(given: Card) -> Section:
    cells = {name: aggregate(name, found) for name, found in given.items()}
    reasons: dict[str, list[str]] = {}
    for name, cell in cells.items():
        if cell.reason:
            reasons.setdefault(cell.reason if cell.value is not None else cell.full, []).append(name)
    rows = tuple((name, cell.text, AGGREGATES[name]) for name, cell in cells.items())
    notes = tuple((", ".join(names), said) for said, names in reasons.items())
    return Section("aggregates", "Alignment over layers", "table", rows, ("name", "value", "what it is"), notes)


def claims(claims: Card) -> Section:
    rows = []
    for name, claim in claims.items():
        p = "" if claim["p"] is None else f" (p = {claim['p']:.3g})"
        rows.append((name, claim["shown"], f"{claim['reason']}{p}"))
    return Section("claims", "What may be claimed", "table", tuple(rows), ("claim", "outcome", "why"))


def statistics_rows(s: Card) -> list[tuple[str, str]]:
    pairing = s["pairing"] if s["pairing"].startswith("by") else "not paired"
    return [
        ("n", f"{counted(s['n'], s['counts'])}, {pairing}"),
        ("margin over the frozen baseline", maybe(s["mean"], "+.2f", s["unit"])),
        (f"standard deviation (ddof {s['ddof']})", maybe(s["sd"], ".2f", s["unit"])),
        (f"{s['confidence']:.0%} interval", interval(s["interval"], "+.2f", s["unit"])),
        ("minimum detectable margin", maybe(s["minimum_detectable_margin"], ".2f", s["unit"])),
        ("in words", s["words"]),
    ]


def provenance_rows(card: Card) -> list[tuple[str, str]]:
    m = card["measured"]
    rows = [("walkback", card["walkback"]), ("card hash", card["hash"])]
    rows.append(
        ("measured", f"{m['layers']} hidden states, {m['samples']} samples in {m['groups']} groups, {m['dtype']}")
    )
    named = {"pool": m["pool"], "credit site": m["site"], "sample hash": m["sample_hash"]}
    rows += [(name, value) for name, value in named.items() if value]
    rows += [("found", line) for line in m["found"]]
    rows += [("error norm", number_text(m["error_norm"], ".3g").full)]
    rows += [("deepest gradient / error norm", number_text(m["grad_over_error"], ".3g").full)]
    return rows + flat(card["provenance"])
