"""Published figures: one TOML file for each section of the papers' results, read into plain values."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from walkback.core.errors import InputError, unknown
from walkback_papers.published.agree import FIGURE_KINDS
from walkback_papers.published.parse_number import Printed, parse

FOLDER = "figures"
SOURCES = {
    "P1": "the first paper",
    "P1d": "its draft",
    "P2": "the later paper",
    "O": "the outline",
    "R": "the package's README",
    "spec": "our reading of them",
}
REFERENCE_BATCH = 128
"""The batch that gradients are quoted for here."""


@dataclass(frozen=True)
class Ask:
    """How ours is found in stored results: a quantity by its name (`quantities.QUANTITIES`), and of which runs."""

    quantity: str
    ours: str = ""
    """The method by the name that tables show, or `DFA shell`, `BP shell`."""
    place: str = "resmlp"
    epochs: str = "full"
    penalty: float = 0.0
    layer: int = -1
    epoch: int | None = None
    """After this epoch, where the end is not meant."""
    over: str = ""
    """The other side of a margin, gain or ratio: a method's name."""
    over_place: str = ""
    over_penalty: float = 0.0
    methods: tuple[str, ...] = ()
    """What is ranked or counted; of a gap, the healthy ones."""
    others: tuple[str, ...] = ()
    """Of a gap, the degenerate ones."""
    places: tuple[str, ...] = ()
    check: str = ""
    edition: str = "three"
    strategy: str = ""
    floor: float | None = None
    field: str = ""
    """A setting of the run."""


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure."""

    id: str
    what: str
    source: str
    text: str
    """As printed."""
    kind: str
    """How it is compared and shown (`agree.KINDS`)."""
    ask: Ask
    study: str
    """The study whose runs it needs."""
    means: str = ""
    """The word of ours that says the same, where a word is printed."""
    batch: int | None = None
    """Of a gradient: the batch whose mean loss it is of."""
    is_batch_stated: bool = True
    """Whether it is sure: by a second figure, or by the README's code."""
    each: bool = False
    """Whether the papers print one for each seed."""
    draws: int = 1
    """The printed ± is over so many draws, not over seeds."""
    calibration: str = ""
    """The choice of our recipe that was fitted to this figure; or `taken over` of a setting."""
    missing: str = ""
    """Why nothing of ours stands beside it, where nothing can."""
    note: str = ""
    """What to know of how the two are compared."""
    tested: str = ""
    """What was tested to explain a difference, or what else is known of it."""
    variants: tuple[str, ...] = ()
    """Variants of the study `sensitivity` that may explain it: they are set beside it where it differs."""
    twin: str = ""
    """The id of the same figure in the other gradient convention."""

    @property
    def word(self) -> str:
        """What ours must say to agree, where a word is printed."""
        return self.means or self.text

    @property
    def printed(self) -> Printed | None:
        """The number to compare with, gradients @128; None where words are printed."""
        if FIGURE_KINDS[self.kind].by == "words" or self.text == "never":
            return None
        found = parse(self.text)
        return found if self.batch is None else found.times(self.batch / REFERENCE_BATCH)

    @property
    def convention(self) -> str:
        """The batch of a gradient norm; none is printed, so that of 1024 is always inferred."""
        if self.batch is None:
            return ""
        sure = "" if self.is_batch_stated and self.batch == REFERENCE_BATCH else " (inferred)"
        return f"@{self.batch}{sure}"


@dataclass(frozen=True)
class FigureSection:
    """A section of the published results."""

    name: str
    title: str
    figures: tuple[PublishedFigure, ...]
    notes: tuple[str, ...] = ()


_ASK = {f.name for f in fields(Ask)}
_FIGURE = {f.name for f in fields(PublishedFigure)} - {"ask"}
_KEYS = _FIGURE | _ASK
_LISTED = {"ours": "ours:", "over": "over"}
"""Keys of which several values may be given, with the word that tells their figures apart."""


@cache
def sections() -> tuple[FigureSection, ...]:
    """All published figures, in the order of their files."""
    folder = files("walkback_papers.published") / FOLDER
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".toml")), key=lambda path: path.name)
    return tuple(_section(path.name, tomllib.loads(path.read_text(encoding="utf-8"))) for path in paths)


def figures() -> dict[str, PublishedFigure]:
    """All of them, by id."""
    return {figure.id: figure for section in sections() for figure in section.figures}


def _section(file: str, given: Mapping[str, Any]) -> FigureSection:
    name = file.removesuffix(".toml").partition("_")[2].replace("_", "-")
    made: list[PublishedFigure] = []
    for group in given["group"]:
        shared = given.get("shared", {}) | {key: value for key, value in group.items() if key != "printed"}
        for printed in group["printed"]:
            made += _figures(name, shared, printed)
    return FigureSection(name, given["title"], tuple(made), tuple(given.get("notes", ())))


def _figures(section: str, shared: Mapping[str, Any], printed: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    """One figure, or one for each of several things of ours that may stand beside it, or that it may be over."""
    whole: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) and key not in _LISTED else v for key, v in {**shared, **printed}.items()
    }
    for key in whole:
        if key not in _KEYS:
            raise unknown(f"key of a published figure in {section}", key, _KEYS)
    if whole["kind"] not in FIGURE_KINDS:
        raise unknown("kind of figure", whole["kind"], FIGURE_KINDS)
    if whole["source"] not in SOURCES:
        raise unknown("source", whole["source"], SOURCES)
    base = whole.pop("id")
    listed = [value if isinstance(value := whole.pop(key, ""), list) else [value] for key in _LISTED]
    for name, over in product(*listed):
        ask = {key: value for key, value in whole.items() if key in _ASK} | {"over": over}
        rest = {key: value for key, value in whole.items() if key in _FIGURE}
        end = ""
        for word, value, values in zip(_LISTED.values(), (name, over), listed, strict=True):
            if len(values) > 1:
                rest["what"] += f" ({word} {value})"
                end += f":{value.lower().replace(' ', '-')}"
        if "missing" in whole:
            ask.setdefault("quantity", "none")
        if "quantity" not in ask:
            raise InputError(f"The figure {section}/{base} has neither a quantity nor a reason why it is missing.")
        yield PublishedFigure(id=f"{section}/{base}@{whole['source']}{end}", ask=Ask(ours=name, **ask), **rest)
