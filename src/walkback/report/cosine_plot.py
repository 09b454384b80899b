"""The plot of the credit of each block: its cosine with the gradient over its null."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from markupsafe import Markup

from walkback.report.cells import tidy
from walkback.report.sections import Card
from walkback.report.wide_svg import wide_line, wide_svg, wide_words

_TOP, _BOTTOM = 5.0, 35.0
"""The heights of the largest and of the smallest value; `templates/page.js` has them too."""


@dataclass(frozen=True)
class BlockMark:
    """The credit of one block over seeds."""

    index: int
    exact: bool
    values: tuple[float, ...]
    null: float | None
    """The standard deviation of its null, of the seed where it is widest."""
    seeds: int

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def text(self) -> str:
        if not self.values:
            return f"block {self.index}: NOT MEASURED"
        if self.exact:
            return f"block {self.index}: {fmean(self.values):+.3f}, the gradient by construction"
        ends = f" ({min(self.values):+.3f} to {max(self.values):+.3f})" if len(self.values) > 1 else ""
        null = "" if self.null is None else f", null sd {self.null:.3f}"
        return f"block {self.index}: {fmean(self.values):+.3f}{ends}{null}"


def block_marks(cards: Sequence[Card]) -> list[BlockMark]:
    """The cosine of the credit that trains each block with the gradient at its output; empty if it was not measured."""
    blocks = [card.get("blocks") or [] for card in cards]
    found = []
    for same in zip(*blocks, strict=False):
        values = tuple(block["used_cos"]["value"] for block in same if block["used_cos"]["status"] == "ok")
        nulls = [
            abs(block["used_cos"]["value"] / block["used_z"]["value"])
            for block in same
            if block["used_cos"]["status"] == block["used_z"]["status"] == "ok" and block["used_z"]["value"]
        ]
        exact = all(block["is_exact"] for block in same)
        found.append(BlockMark(same[0]["index"], exact, values, max(nulls, default=None), len(same)))
    return found if any(mark.values for mark in found) else []


def cosine_range(rows: Iterable[Sequence[BlockMark]], null_z: float) -> tuple[float, float]:
    """The lowest and the highest value of all plots of cosines."""
    marks = [mark for row in rows for mark in row]
    values = [value for mark in marks for value in mark.values]
    bands = [null_z * mark.null for mark in marks if mark.null is not None]
    return min([-0.1, *values, *(-band for band in bands)]), max([0.2, *values, *bands])


def without_blocks(cards: Sequence[Card]) -> str:
    """What is said in place of cosines by block; cards of older versions have them by layer."""
    layers = [layer for card in cards for layer in card["layers"]]
    return "measured by layer only" if any(layer["credit"] for layer in layers) else "no credit measured"


def cosine_plot(
    marks: Sequence[BlockMark], ends: tuple[float, float], null_z: float, instead: str = "no credit measured"
) -> Markup:
    """A dot for each block, with a line from the lowest to the highest seed, over the shaded null."""
    low, high = ends

    def y(value: float) -> float:
        return round(_BOTTOM - (value - low) / (high - low) * (_BOTTOM - _TOP), 1)

    parts = [wide_line("0%", y(0), "100%", y(0), "zero")]
    width = 100 / max(len(marks), 1)
    radius = 4 if len(marks) <= 12 else 2
    for at, mark in enumerate(marks):
        x = f"{width * (at + 0.5):.2f}%"
        if mark.null is not None and not mark.exact:
            band = Markup('<rect class="null" x="{:.2f}%" width="{:.2f}%" y="{}" height="{}" data-null="{:.6g}"/>')
            half = min(null_z * mark.null, high)
            parts.append(band.format(width * (at + 0.1), width * 0.8, y(half), round(y(-half) - y(half), 1), mark.null))
        if len(mark.values) > 1:
            parts.append(wide_line(x, y(min(mark.values)), x, y(max(mark.values)), "bar own"))
        if mark.values:
            kind = "dot open" if mark.exact else "dot"
            dot = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"/>')
            parts.append(dot.format(kind, x, y(fmean(mark.values)), radius))
    if not marks:
        parts = [wide_words(instead)]
    return wide_svg(parts)


def block_texts(marks: Sequence[BlockMark], instead: str = "no credit measured") -> list[str]:
    """The numbers of the plot."""
    return [tidy(mark.text) for mark in marks] or [instead]
