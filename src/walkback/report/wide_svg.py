"""Plots as wide as the screen allows, as inline SVG: horizontal positions are percentages, so that dots stay round."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

WIDE_HEIGHT = 40
"""The height of these plots, in pixels."""


def wide_svg(parts: Iterable[Markup]) -> Markup:
    """A plot; the element around it has the description."""
    return Markup('<svg width="100%" height="{}" aria-hidden="true">{}</svg>').format(
        WIDE_HEIGHT, Markup("").join(parts)
    )


def wide_line(x1: str, y1: float, x2: str, y2: float, kind: str) -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def wide_words(words: str) -> Markup:
    return Markup('<text class="instead" x="50%" y="24" text-anchor="middle">{}</text>').format(words)
