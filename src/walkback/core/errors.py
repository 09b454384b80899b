"""The errors a user may see. Each carries the exit code of the command that raised it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_WALKED_BACK = 1
EXIT_UNFINISHED = 2
EXIT_INPUT = 3


class WalkbackError(Exception):
    """A sentence for the user: what was got, what was expected, what to do next."""

    exit_code = EXIT_UNFINISHED


class InputError(WalkbackError):
    """The user's input, files or disk are at fault; nothing was changed."""

    exit_code = EXIT_INPUT


def unknown(kind: str, name: object, known: Iterable[str]) -> InputError:
    """The error for a name that is not known: "Unknown method 'dff'. Did you mean 'dfa'? Known: ..."."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    listing = ", ".join(names) if names else "none"
    return InputError(f"Unknown {kind} '{name}'.{hint} Known: {listing}.")
