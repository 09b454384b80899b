"""Column widths that make a LaTeX table fit the page; a table that cannot fit is split into several."""

from __future__ import annotations

import re
from collections.abc import Sequence

LINE = 76
"""Letters per line on the narrowest common page (345 pt wide) at \\scriptsize."""
_FEW_COLUMNS, _LINE_FOOTNOTESIZE = 4, 66
"""A table of few columns is set in \\footnotesize (`latex.latex_table`), so fewer letters fit on a line."""
_WIDE_LETTER = 1.4
"""The width of a capital or of an equally wide sign, in letters."""
_GAP = 1.6
"""The space between two columns, in letters."""

Piece = tuple[list[int], str]
"""The indices of a table's columns, and their \\begin{tabular} specification."""


def fitting(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Piece]:
    """The pieces a table is printed in: one piece without line breaks if it fits, else with line breaks, else several.

    Every piece begins with the first column, which names the rows.
    """
    table = [heads, *rows]
    full = [max(_width(row[column]) for row in table) for column in range(len(heads))]
    least = [max(_longest_word(row[column]) for row in table) for column in range(len(heads))]
    if _total(full) <= _line(len(heads)):
        return [(list(range(len(heads))), "l" * len(heads))]
    pieces: list[list[int]] = [[0]]
    for column in range(1, len(heads)):
        if len(pieces[-1]) > 1 and _total([least[each] for each in (*pieces[-1], column)]) > _line(len(pieces[-1]) + 1):
            pieces.append([0])
        pieces[-1].append(column)
    return [(columns, _layout([least[c] for c in columns], [full[c] for c in columns])) for columns in pieces]


def _layout(least: Sequence[float], full: Sequence[float]) -> str:
    """A specification with widths between each column's longest word (`least`) and its longest cell (`full`).

    Space left over after the longest words is shared in proportion to what each column lacks for its longest cell.
    """
    line = _line(len(full))
    if _total(full) <= line:
        return "l" * len(full)
    spare = max(0.0, line - _total(least))
    lack = [want - need for want, need in zip(full, least, strict=True)]
    widths = [need + spare * each / max(1.0, sum(lack)) for need, each in zip(least, lack, strict=True)]
    return "".join(rf">{{\raggedright\arraybackslash}}p{{{width / line:.3f}\linewidth}}" for width in widths)


def _line(columns: int) -> int:
    return LINE if columns > _FEW_COLUMNS else _LINE_FOOTNOTESIZE


def _width(text: str) -> float:
    return sum(_WIDE_LETTER if letter.isupper() or letter in "mw%@‖±×≥≤→" else 1 for letter in text)


def _total(widths: Sequence[float]) -> float:
    return sum(widths) + _GAP * (len(widths) - 1)


def _longest_word(text: str) -> float:
    """The width of the longest part that cannot be broken; `latex.breakable` says where a text may be broken."""
    return max((_width(piece) for word in text.split() for piece in _pieces(word)), default=0.0)


def _pieces(word: str) -> list[str]:
    return re.split(r"(?<=[/_=+,:])|(?<=[0-9a-f]{16})", word) if len(word) > 24 else [word]
