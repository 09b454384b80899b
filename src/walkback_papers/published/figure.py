"""Published figures, read from TOML files: one file for each section of the papers' results."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from walkback.core.errors import InputError, unknown
from walkback_papers.published.agree import FIGURE_KINDS
from walkback_papers.published.parse_number import Printed, parse

FOLDER = "figures"
PAPER_TITLES = {
    "P1": "Beyond Accuracy and Alignment: A Diagnostic Evaluation Protocol for Feedback Alignment",
    "P2": (
        "What Accuracy and Gradient Cosine Miss: Evaluating Feedback Alignment via Scale Stability, "
        "Reference Validity, and Depth Utility"
    ),
}
"""The titles of the two papers."""
SOURCES = {
    "P1": f"the first paper (“{PAPER_TITLES['P1']}”)",
    "P1d": "its draft",
    "P2": f"the later paper (“{PAPER_TITLES['P2']}”)",
    "O": "the outline",
    "R": "the package's README",
    "spec": "our reading of them",
}
REFERENCE_BATCH = 128
"""The batch size for which gradient norms are quoted here."""


@dataclass(frozen=True)
class FigureQuery:
    """How our value is read from stored results: the quantity's name (`quantities.QUANTITIES`) and the runs."""

    quantity: str
    ours: str = ""
    """The method by the name that tables show; `DFA shell` and `BP shell` are frozen baselines."""
    place: str = "resmlp"
    epochs: str = "full"
    penalty: float = 0.0
    layer: int = -1
    epoch: int | None = None
    """Measured after this epoch; None for the end of training."""
    over: str = ""
    """The method that a margin, gain or ratio is taken over."""
    over_place: str = ""
    over_penalty: float = 0.0
    methods: tuple[str, ...] = ()
    """The methods that are ranked or counted; for a gap, the healthy ones."""
    others: tuple[str, ...] = ()
    """For a gap, the degenerate methods."""
    places: tuple[str, ...] = ()
    check: str = ""
    edition: str = "three"
    strategy: str = ""
    floor: float | None = None
    field: str = ""
    """A setting of the run."""


@dataclass(frozen=True)
class PublishedFigure:
    """One number or word that a paper prints, and how it is compared with ours."""

    id: str
    what: str
    source: str
    text: str
    """As printed."""
    kind: str
    """How it is compared and formatted (`agree.FIGURE_KINDS`)."""
    query: FigureQuery
    study: str
    """The study whose runs it needs."""
    means: str = ""
    """Our equivalent of a printed word."""
    batch: int | None = None
    """For a gradient norm: the size of the batch whose mean loss is differentiated."""
    is_batch_stated: bool = True
    """Whether the batch is known: from a second figure or from the README's code."""
    each: bool = False
    """Whether the papers print one value per seed."""
    draws: int = 1
    """If the printed ± is over draws rather than seeds, the number of draws."""
    calibration: str = ""
    """The choice of our recipe that was fitted to this figure; `taken over` for a setting."""
    missing: str = ""
    """Why there is no value of ours, if there cannot be one."""
    note: str = ""
    """A remark on how the two are compared."""
    tested: str = ""
    """What was tested to explain a difference, or is known about it."""
    variants: tuple[str, ...] = ()
    """Variants of the study `sensitivity` that may explain a difference; shown where the figure differs."""
    twin: str = ""
    """The id of the same figure printed for the other batch size."""

    @property
    def quantity(self) -> FigureQuery:
        """What it is a figure of. Figures of one quantity are one figure, printed more than once; a printed EP is
        compared with EP and with EP short and is one figure too."""
        return replace(self.query, ours=self.query.ours.removesuffix(" short"))

    @property
    def word(self) -> str:
        """The word that ours must equal, if a word is printed."""
        return self.means or self.text

    @property
    def printed(self) -> Printed | None:
        """The number to compare with, gradients @128; None if a word is printed."""
        if FIGURE_KINDS[self.kind].by == "words" or self.text == "never":
            return None
        found = parse(self.text)
        return found if self.batch is None else found.times(self.batch / REFERENCE_BATCH)

    @property
    def convention(self) -> str:
        """The batch size of a gradient norm, as shown; the papers print none, so 1024 is always inferred."""
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


_QUERY_KEYS = {f.name for f in fields(FigureQuery)}
_FIGURE_KEYS = {f.name for f in fields(PublishedFigure)} - {"query"}
_KEYS = _FIGURE_KEYS | _QUERY_KEYS
_LIST_KEYS = {"ours": "ours:", "over": "over"}
"""Keys that may have several values, with the word that distinguishes the resulting figures."""


@cache
def sections() -> tuple[FigureSection, ...]:
    """All published figures, in the order of their files."""
    folder = files("walkback_papers.published") / FOLDER
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".toml")), key=lambda path: path.name)
    return tuple(_section(path.name, tomllib.loads(path.read_text(encoding="utf-8"))) for path in paths)


def figures() -> dict[str, PublishedFigure]:
    """All published figures, by id."""
    return {figure.id: figure for section in sections() for figure in section.figures}


def _section(file: str, given: Mapping[str, Any]) -> FigureSection:
    name = file.removesuffix(".toml").partition("_")[2].replace("_", "-")
    found: list[PublishedFigure] = []
    for group in given["group"]:
        shared = given.get("shared", {}) | {key: value for key, value in group.items() if key != "printed"}
        for printed in group["printed"]:
            found += _figures(name, shared, printed)
    return FigureSection(name, given["title"], tuple(found), tuple(given.get("notes", ())))


def _figures(section: str, shared: Mapping[str, Any], printed: Mapping[str, Any]) -> Iterator[PublishedFigure]:
    """The figures of one printed value: one for each combination of listed methods of ours and baselines."""
    given: dict[str, Any] = {
        key: tuple(v) if isinstance(v, list) and key not in _LIST_KEYS else v
        for key, v in {**shared, **printed}.items()
    }
    for key in given:
        if key not in _KEYS:
            raise unknown(f"key of a published figure in {section}", key, _KEYS)
    if given["kind"] not in FIGURE_KINDS:
        raise unknown("kind of figure", given["kind"], FIGURE_KINDS)
    if given["source"] not in SOURCES:
        raise unknown("source", given["source"], SOURCES)
    base = given.pop("id")
    listed = [value if isinstance(value := given.pop(key, ""), list) else [value] for key in _LIST_KEYS]
    for name, over in product(*listed):
        query = {key: value for key, value in given.items() if key in _QUERY_KEYS} | {"over": over}
        rest = {key: value for key, value in given.items() if key in _FIGURE_KEYS}
        id_suffix = ""
        for word, value, values in zip(_LIST_KEYS.values(), (name, over), listed, strict=True):
            if len(values) > 1:
                rest["what"] += f" ({word} {value.replace('shell', 'frozen baseline')})"
                id_suffix += f":{value.lower().replace(' ', '-')}"
        if "missing" in given:
            query.setdefault("quantity", "none")
        if "quantity" not in query:
            raise InputError(f"The figure {section}/{base} has neither a quantity nor a reason why it is missing.")
        yield PublishedFigure(
            id=f"{section}/{base}@{given['source']}{id_suffix}", query=FigureQuery(ours=name, **query), **rest
        )
