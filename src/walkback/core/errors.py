"""Errors shown to users. Each class has the exit code that the command line returns for it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_DONE = 0
EXIT_WALKED_BACK = 1
EXIT_UNFINISHED = 2
EXIT_INPUT = 3
EXIT_INTERRUPTED = 130
"""Ctrl-C before anything was begun: 128 + SIGINT, as shells say it."""
EXIT_NO_READER = 141
"""The reader of the output (`head`) has closed it, so a verdict may not have been read: 128 + SIGPIPE."""


class WalkbackError(Exception):
    """Base of all errors shown to users. The message says what was got, what was expected and what to do next."""

    exit_code = EXIT_UNFINISHED


class InputError(WalkbackError):
    """The cause is the user's input, files or disk; nothing was changed."""

    exit_code = EXIT_INPUT


def unknown(kind: str, name: object, known: Iterable[str]) -> InputError:
    """Make the error for a name that is not in `known`: "Unknown method 'dff'. Did you mean 'dfa'? Known: ..."."""
    names = sorted(known)
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    listing = ", ".join(names) if names else "none"
    return InputError(f"Unknown {kind} '{name}'.{hint} Known: {listing}.")
