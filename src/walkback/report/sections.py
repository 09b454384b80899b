"""The sections of a card: headings and rows of strings, with the reasons for missing numbers as notes.

The words that all formats show for verdicts, checks and frozen baselines are defined here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from walkback.judge.blocks import BLOCK_COLUMNS
from walkback.judge.editions import Outcome
from walkback.judge.flag import RESULT_WORDS
from walkback.judge.glossary import in_short
from walkback.report.cells import EMPTY_CELL, Cell, accuracies, counted, flat, interval, maybe, number_text, size, tidy

Card = Mapping[str, Any]

VERDICT_WORDS = {
    "trustworthy": "TRUSTWORTHY",
    "walked_back": "NEEDS WALK-BACK",
    "inconclusive": "INCONCLUSIVE",
    "cannot_be_judged": "CANNOT BE JUDGED",
}
VERDICT_PHRASES: Mapping[Outcome, tuple[str, str]] = {
    "walked_back": ("needs walk-back", "need walk-back"),
    "cannot_be_judged": ("cannot be judged", "cannot be judged"),
    "inconclusive": ("is inconclusive", "are inconclusive"),
    "trustworthy": ("is trustworthy", "are trustworthy"),
}
"""Verdicts after a count of one and of several, worst first."""
CLAIM_KINDS: Mapping[str, str] = {
    "stands": "good", "trivial": "good", "walked_back": "bad", "invalid": "bad", "cannot_be_judged": "bad",
    "not_made": "none", "not_applicable": "none",
}  # fmt: skip
"""CSS classes of claims by their outcome; every other one is open: `warn`."""
CHECK_NAMES = {"D1": "growth (D1)", "direction": "drift (c)"}
"""Displayed names of checks by their id; every other check is displayed by its own name and id."""
FROZEN_BASELINE_NAMES = {
    "method_shell": "frozen baseline, rest trained by the method",
    "bp_shell": "bp frozen baseline, rest trained by backprop",
    "unnamed": "frozen baseline, kind not given",
}
"""Displayed names of the stored baselines. All freeze the blocks at random; they differ in how the rest is trained."""


@dataclass(frozen=True)
class Section:
    """A heading and rows of strings below it."""

    id: str
    title: str
    kind: Literal["table", "pairs", "list", "commands"]
    rows: tuple[tuple[str, ...], ...]
    heads: tuple[str, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    """Pairs of a subject and the reason given for it."""


@dataclass(frozen=True)
class LayerView:
    """One layer's numbers, for the layer strip."""

    index: int
    hidden: Cell
    grad: Cell
    replay: Cell
    credit: Cell
    band: float | None
    """Half the width of the credit cosine's null."""
    label: str


def result_text(check: Card) -> str:
    """The displayed result of a check: passes, fails, INVALID, NOT MEASURED or NOT INFORMATIVE."""
    return RESULT_WORDS.get(check["shown"], str(check["shown"]))


def short_check_name(check: Card) -> str:
    """The displayed name of a check within a sentence: `growth (D1)`, `D2`, `drift (c)`."""
    return CHECK_NAMES.get(check["id"], str(check["id"]))


def full_check_name(check: Card) -> str:
    """The displayed name of a check in a table: `growth (D1)`, `reference validity (D2)`, `drift (c)`."""
    name = str(check["name"])
    return CHECK_NAMES.get(check["id"], name if check["id"] in name else f"{name} ({check['id']})")


def pairs_section(name: str, title: str, rows: Iterable[tuple[str, str]]) -> Section:
    """A section of (name, text) pairs."""
    return Section(name, title, "pairs", tuple(rows))


def claim_rows(card: Card) -> list[tuple[str, str]]:
    """What was audited, its accuracies and baselines, and each edition's verdict."""
    claim = card["claim"]
    rows = [("method", claim["method"]), ("architecture", claim["arch"]), ("data", claim["data"])]
    rows += [("data digest", claim["digest"]), *([("notes", claim["notes"])] if claim["notes"] else [])]
    rows.append(("accuracy", accuracies(claim["headline_acc"])))
    for name, values in claim["frozen"].items():
        deciding = ", decides D3" if name == claim["null"] else ""
        rows.append((FROZEN_BASELINE_NAMES[name], f"{accuracies(values)} ({name}{deciding})"))
    alignment = number_text(claim["alignment"], "+.3f").full
    rows += [("backprop accuracy", accuracies(claim["bp_acc"])), ("aggregate cosine Γ (A1)", alignment)]
    for name, edition in card["verdicts"].items():
        by = f", decided by {', '.join(edition['decided_by'])}" if edition["decided_by"] else ""
        here = ", the verdict of this card" if name == card["protocol"] else ""
        rows.append((f"edition {name}", f"{VERDICT_WORDS[edition['verdict']]}{by}{here}"))
    return rows


def measured_text(check: Card) -> str:
    """A check's value; INVALID or NOT MEASURED where there is none, `see reason` where it is not finite."""
    if check["shown"] in ("INVALID", "NOT MEASURED"):
        return str(check["shown"])
    return "see reason" if check["value"] is None else tidy(maybe(check["value"], ".3g", check["unit"]))


def limit_text(check: Card) -> str:
    """The values at which a check fails: `> 50`."""
    if check["threshold"] is None:
        return EMPTY_CELL
    return f"{'>' if check['side'] == 'above' else '<'} {size(check['threshold'])}"


def checks_section(checks: Sequence[Card], confidence: float) -> Section:
    """The table of checks; the notes are the reasons, one for each check, in the rows' order."""
    heads = ("check", "measured", f"{confidence:.0%} interval", "fails if", "result", "flips at", "n")
    rows, notes = [], []
    for check in checks:
        usable = check["shown"] not in ("INVALID", "NOT MEASURED")
        rows.append(
            (
                full_check_name(check),
                measured_text(check),
                tidy(interval(check["interval"] if usable else None, ".3g")),
                limit_text(check),
                result_text(check),
                tidy(maybe(check["flips_at"] if usable else None, ".3g")),
                counted(check["n"], check["counts"]),
            )
        )
        extra = "" if check["decides"] else " (for information; decides no verdict)"
        notes.append((short_check_name(check), tidy(f"{check['reason']}{extra}")))
    return Section("checks", "Checks", "table", tuple(rows), heads, tuple(notes))


def layer_view(layer: Card, null_z: float) -> LayerView:
    """The cells of one stored layer; the null's half width is `null_z` standard deviations."""
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


def layers_section(stored: Sequence[Card], layers: Sequence[LayerView]) -> Section:
    """The table of layers; `stored` are the card's layers and `layers` their views."""
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
                reasons.setdefault((name, note_text(cell)), []).append(str(layer.index))
    # One reason often holds for many layers; it is given once, with all of them.
    notes = tuple(
        (f"{name}, layer{'s' if len(at) > 1 else ''} {', '.join(at)}", text) for (name, text), at in reasons.items()
    )
    return Section("layers", "Layer by layer", "table", tuple(rows), heads, notes)


def blocks_section(blocks: Sequence[Card]) -> Section:
    """The table of blocks: columns without any number are left out."""
    heads, columns, notes = ["block"], [[str(block["index"]) for block in blocks]], []
    for head, name, spec in BLOCK_COLUMNS:
        cells = [number_text(block[name], spec) for block in blocks]
        if all(cell.value is None for cell in cells):
            continue
        heads.append(head)
        columns.append([EMPTY_CELL if cell.value is None else cell.text for cell in cells])
        missing = {cell.reason: str(index) for index, cell in enumerate(cells) if cell.value is None}
        notes += [(f"{head}, block {index}", reason) for reason, index in missing.items()]
    matter = [str(block["index"]) for block in blocks if block["matters"]]
    if any(block["matters"] is not None for block in blocks):
        listed = f"block {', '.join(matter)}" if matter else "none"
        notes.append(("blocks that matter singly", f"{listed} (skipping it costs accuracy, Holm over blocks)"))
    return Section("blocks", "Block by block", "table", tuple(zip(*columns, strict=True)), tuple(heads), tuple(notes))


def note_text(cell: Cell) -> str:
    """The reason of a cell, with the word that is in the number's place where there is no number."""
    return cell.reason if cell.value is not None else cell.full


def aggregate_cell(name: str, number: Card) -> Cell:
    """The cell of one aggregate over layers; `name` is its stored key."""
    return number_text(number, ".1f" if name.endswith("_z") else "+.3f" if name != "concentration" else ".3f")


def aggregates_section(aggregates: Card) -> Section:
    """The table of aggregates over layers."""
    cells = {name: aggregate_cell(name, number) for name, number in aggregates.items()}
    reasons: dict[str, list[str]] = {}
    for name, cell in cells.items():
        if cell.reason:
            reasons.setdefault(note_text(cell), []).append(name)
    rows = tuple((name, cell.text, in_short(name)) for name, cell in cells.items())
    notes = tuple((", ".join(names), text) for text, names in reasons.items())
    return Section("aggregates", "Alignment over layers", "table", rows, ("name", "value", "what it is"), notes)


def claims_section(claims: Card) -> Section:
    """The table of claims with their outcomes and reasons."""
    rows = []
    for name, claim in claims.items():
        p = "" if claim["p"] is None else f" (p = {claim['p']:.3g})"
        rows.append((name, claim["shown"], tidy(f"{claim['reason']}{p}")))
    return Section("claims", "What may be claimed", "table", tuple(rows), ("claim", "outcome", "why"))


def statistics_rows(s: Card) -> list[tuple[str, str]]:
    """The margin over the frozen baseline with its interval; `s` is the card's `statistics`."""
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
    """How the card was measured and by which version, and everything recorded under `provenance`."""
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
