"""How wide the columns of a LaTeX table are, so that it fits the page; one that cannot is cut into pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence

LINE = 76
"""Letters that fit side by side on the narrowest common page (345 pt wide) at \\scriptsize."""
_FEW, LINE_OF_FEW = 4, 66
"""A table of few columns is set larger (`latex.laid_out`), so fewer letters fit."""
_BROAD = 1.4
"""The width of a capital, or of a sign as wide, in letters."""
GAP = 1.6
"""The space between two columns, in letters."""

Piece = tuple[list[int], str]
"""Columns of a table by their number, and what \\begin{tabular} is told of them."""


def fitting(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Piece]:
    """The pieces a table is printed in: whole and unbroken, with broken lines, or cut, as far as it must be.

    Every piece begins with the first column, which names the rows.
    """
    table = [heads, *rows]
    whole = [max(_width(row[column]) for row in table) for column in range(len(heads))]
    least = [max(_longest_word(row[column]) for row in table) for column in range(len(heads))]
    if _total(whole) <= _line(len(heads)):
        return [(list(range(len(heads))), "l" * len(heads))]
    pieces: list[list[int]] = [[0]]
    for column in range(1, len(heads)):
        if len(pieces[-1]) > 1 and _total([least[each] for each in (*pieces[-1], column)]) > _line(len(pieces[-1]) + 1):
            pieces.append([0])
        pieces[-1].append(column)
    return [(columns, _layout([least[c] for c in columns], [whole[c] for c in columns])) for columns in pieces]


def _layout(least: Sequence[float], whole: Sequence[float]) -> str:
    """Widths between a column's longest word and its longest cell: what is left over is shared by what they lack."""
    line = _line(len(whole))
    if _total(whole) <= line:
        return "l" * len(whole)
    spare = max(0.0, line - _total(least))
    lack = [want - need for want, need in zip(whole, least, strict=True)]
    widths = [need + spare * each / max(1.0, sum(lack)) for need, each in zip(least, lack, strict=True)]
    return "".join(rf">{{\raggedright\arraybackslash}}p{{{width / line:.3f}\linewidth}}" for width in widths)


def _line(columns: int) -> int:
    return LINE if columns > _FEW else LINE_OF_FEW


def _width(text: str) -> float:
    return sum(_BROAD if letter.isupper() or letter in "mw%@‖±×≥≤→" else 1 for letter in text)


def _total(widths: Sequence[float]) -> float:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest_word(text: str) -> float:
    """Where a line may be broken is decided in `latex.breakable`: at spaces, and in long words after some signs."""
    return max((_width(piece) for word in text.split() for piece in _pieces(word)), default=0.0)


def _pieces(word: str) -> list[str]:
    return re.split(r"(?<=[/_=+,:])|(?<=[0-9a-f]{16})", word) if len(word) > 24 else [word]
