"""What commands print: names and texts from elsewhere cannot control the terminal, and every terminal can show it.

`main` replaces stdout and stderr by `PlainStream`s, so that `print` is safe everywhere; tables and progress bars are
drawn by `console()`, which styles text itself and interprets none of it as markup.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and line feed, and characters that change the direction of what follows."""
_COLOURS = re.compile("(\x1b\\[(?:0|1;3[1-5])m)")
"""How walkback itself prints bold colours."""


def visible(text: str) -> str:
    """The text with control characters written as escapes, such as \\x1b."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """The text of an error, on one line."""
    return visible(" ".join(text.split("\n")))


class PlainStream:
    """Standard output or error as `print` writes to it: control characters, and what the encoding lacks, as escapes.

    With `is_drawn` control characters pass: rich makes them, and escapes those of its texts itself.
    """

    def __init__(self, stream: TextIO, is_drawn: bool = False):
        self.stream, self.is_drawn = stream, is_drawn

    def write(self, text: str) -> int:
        if not self.is_drawn:
            text = self._without_controls(text)
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def _without_controls(self, text: str) -> str:
        if "\x1b" not in text or not self.stream.isatty():
            return visible(text)
        parts = _COLOURS.split(text)
        return "".join(part if _COLOURS.fullmatch(part) else visible(part) for part in parts)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Print through `PlainStream`s inside the block. A closed stdout or stderr is replaced by one that is discarded."""
    before = sys.stdout, sys.stderr
    streams: list[Any] = [PlainStream(stream or io.TextIOWrapper(io.BytesIO(), "utf-8")) for stream in before]
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def keep_standard_descriptors_open() -> None:
    """Open /dev/null where standard input, output or error is closed: the next file opened would take its place."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """A console for tables and progress bars: texts are printed as they are, controls as escapes."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

        def on_broken_pipe(self) -> NoReturn:
            # rich exits with 1, which is a verdict here.
            raise BrokenPipeError

    found = sys.stderr if stderr else sys.stdout
    stream = found.stream if isinstance(found, PlainStream) else found
    drawn: Any = PlainStream(stream, is_drawn=True)
    return PlainConsole(file=drawn, quiet=quiet, highlight=False, markup=False, emoji=False)
