"""What the terminal can show: marks or ASCII words, and colours for verdicts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from walkback.judge.editions import Outcome

_GREEN, _RED, _YELLOW, _MAGENTA = 32, 31, 33, 35
_COLOURS: Mapping[str, int] = {
    "trustworthy": _GREEN,
    "walked_back": _RED,
    "inconclusive": _YELLOW,
    "cannot_be_judged": _MAGENTA,
    "confirmed": _GREEN,
    "refuted": _RED,
    "not_measured": _YELLOW,
}


def shows_colours() -> bool:
    """Whether stdout is a terminal that shows colours, and the user has not set NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(verdict: str, text: str) -> str:
    """The text in the colour of a verdict, bold; unchanged where stdout shows no colours."""
    return f"\033[1;{_COLOURS[verdict]}m{text}\033[0m" if shows_colours() else text


def printable(text: str) -> str:
    """The text with × as x where stdout's encoding lacks it."""
    return text if _can_print("×") else text.replace("×", "x")


def marks() -> Mapping[Outcome, str]:
    """The marks of verdicts, or words where stdout's encoding lacks the marks."""
    from walkback.report.verdict_lines import ASCII_MARKS, MARKS

    return MARKS if _can_print("".join(MARKS.values())) else ASCII_MARKS


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
