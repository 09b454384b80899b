"""Text in figures: real subscripts and powers of ten in place of `g_L` and `1e-7`, and minus signs."""

from __future__ import annotations

import re
import textwrap

SIZE = 9.0
"""Size of text in points; subscripts have 70% of it."""
_LETTER = 0.6 * SIZE / 72
"""The approximate width of a letter in inches."""
_SUBSCRIPT = re.compile(r"(?<!\w)([A-Za-z])_(l(?:[+-]1)?|L|i|\d+)(?![\w.])")
_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([+-]?\d+)(?![\w.])")
_MINUS = re.compile(r"(?<![\w$])-(?=\d)")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def typeset(text: str) -> str:
    """The text as matplotlib draws it: `‖g_L‖` with a subscript, `8e-7` as 8×10⁻⁷; a dollar sign stays one."""
    text = text.replace("$", r"\$")
    text = _MINUS.sub("−", text)
    text = _POWER.sub(lambda match: _product(match[1], int(match[2])), text)
    return _SUBSCRIPT.sub(r"$\1_{\2}$", text)


def tick_label(value: float) -> str:
    """A number along an axis: plain from 0.01 to 999, otherwise with a power of ten."""
    if value == 0 or 0.01 <= abs(value) < 1000:
        return typeset(f"{value:g}")
    digits, _, exponent = f"{value:.2e}".partition("e")
    return typeset(f"{float(digits):g}e{int(exponent)}")


def _product(digits: str, exponent: int) -> str:
    power = f"10{str(exponent).translate(_RAISED)}"
    return power if digits == "1" else f"{digits}×{power}"


def width_of(text: str) -> float:
    """The approximate width of a text in inches; the longest line counts."""
    return _LETTER * max(map(len, text.split("\n")))


def wrapped(text: str, inches: float) -> str:
    """The text in lines of at most this width, as far as its words allow; `λ = 0.01` stays in one line."""
    text = re.sub(r" = | (?=pp\b)", lambda match: match[0].replace(" ", "\u00a0"), text)
    return textwrap.fill(text, max(1, int(inches / _LETTER)), break_long_words=False, break_on_hyphens=False)
