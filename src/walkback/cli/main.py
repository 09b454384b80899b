"""The `walkback` command: run the file of a sub-command and turn errors into one sentence and an exit code."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from walkback.cli.output import keep_standard_descriptors_open, one_line, plain_streams
from walkback.core.catalog import Catalog
from walkback.core.errors import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_NO_READER, EXIT_UNFINISHED, WalkbackError, unknown

COMMANDS = Catalog(kind="command", package="walkback.cli.commands", attribute="run", group="walkback.commands")
GROUPS: dict[str, tuple[str, ...]] = {
    "first steps": ("demo", "doctor", "ls", "explain"),
    "train and judge": ("train", "audit", "diagnose", "watch", "sweep"),
    "read and share": ("show", "render", "verify", "checklist"),
    "check evaluation code": ("lint", "pitfalls"),
    "the papers' experiments": ("study", "quote", "reproduction"),
    "data, speed, shell": ("data", "bench", "completion"),
}
"""The commands as `walkback --help` lists them; those of other packages come after them."""


class Parser(argparse.ArgumentParser):
    """argparse with walkback's exit code for usage errors; abbreviated options are refused."""

    def __init__(self, *words: object, **named: object):
        super().__init__(*words, **{"allow_abbrev": False, **named})  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        known = [option for action in self._actions for option in action.option_strings]
        for word in (word.rstrip(":") for word in message.split() if "/--" not in word):
            close = difflib.get_close_matches(word, known, n=1) if word.startswith("--") and word not in known else []
            if close:
                message += f". Did you mean {close[0]}?"
                break
        message = message if message.endswith("?") else message + "."
        self.exit(EXIT_INPUT, f"{self.prog}: {message} See `{self.prog} --help`.\n")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = list(sys.argv[1:] if words is None else words)
    with plain_streams():
        return _run(given)


def _run(given: list[str]) -> int:
    try:
        code = _dispatch(given)
        sys.stdout.flush()
        return code
    except WalkbackError as error:
        print(f"walkback: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(
            "\nwalkback: interrupted. Finished runs are kept; continue with --resume where it exists.", file=sys.stderr
        )
        return EXIT_UNFINISHED
    except BrokenPipeError:
        # The reader of the pipe (head, less) has closed it: not an error.
        _discard_stdout()
        return EXIT_NO_READER
    except RuntimeError as error:
        # Python 3.11 raises this where Ctrl-C comes while a class is made, as in an import.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        print("\nwalkback: interrupted before anything was begun.", file=sys.stderr)
        return EXIT_INTERRUPTED
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        print(f"walkback: {error.strerror or error}{where}. Check the disk and the path.", file=sys.stderr)
        _discard_stdout()
        return EXIT_INPUT


def _discard_stdout() -> None:
    """Discard what could not be printed: Python flushes stdout at exit and would report the error again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_help())
        return 0 if given else EXIT_INPUT
    if given[0] == "--version":
        from walkback.core.version import __version__

        print(f"walkback {__version__}")
        return 0
    name, rest = given[0], given[1:]
    if name not in COMMANDS.names():
        raise unknown("command", name, COMMANDS.names())
    try:
        args = parser_of(name).parse_args(rest)
    except SystemExit as stop:
        return int(stop.code or 0)
    code: int = COMMANDS.module(name).run(args)
    return code


def parser_of(name: str) -> Parser:
    """The parser of a sub-command."""
    module = COMMANDS.module(name)
    parser = Parser(prog=f"walkback {name}", description=module.__doc__, formatter_class=_Help)
    module.add_arguments(parser)
    return parser


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps a description's line breaks and shows defaults that are not empty, lists as they are typed."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, False, (), [], "") or "default" in (action.help or ""):
            return action.help
        if isinstance(action.default, list | tuple):
            return f"{action.help} (default: {' '.join(map(str, action.default))})"
        return super()._get_help_string(action)


def _help() -> str:
    entries = {entry.name: entry for entry in COMMANDS.entries()}
    width = max(map(len, entries))
    others = tuple(name for name in entries if not any(name in names for names in GROUPS.values()))
    groups = {**GROUPS, **({"from other packages": others} if others else {})}
    lines = [
        "usage: walkback COMMAND ...",
        "",
        "May you claim that your method trains this network's depth? Train, measure, judge.",
    ]
    for title, names in groups.items():
        found = [entries[name] for name in names if name in entries]
        lines += ["", f"{title}:", *(f"  {entry.name:<{width}} {entry.summary}" for entry in found)]
    lines += [
        "",
        "`walkback COMMAND --help` shows its options. Exit codes: 0 done, 1 walked back, 2 unfinished or inconclusive,",
        "3 usage or input error.",
    ]
    return "\n".join(lines)


def entry() -> NoReturn:
    """Entry point of the console script."""
    keep_standard_descriptors_open()
    sys.exit(main())
