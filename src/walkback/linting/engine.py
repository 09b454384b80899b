"""Finds the files, parses them, runs the rules and takes out what comments say to ignore."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from walkback.core.errors import InputError
from walkback.linting.rule import Rule
from walkback.linting.source import Source

SUFFIXES = (".py", ".ipynb")
IGNORE = re.compile(r"#\s*walkback:\s*ignore(?:\[([^\]]*)\])?(?!\w)")


@dataclass(frozen=True, order=True)
class LintFinding:
    """One place and what is wrong there. In a notebook `cell` counts code cells from 1 and `line` is the cell's."""

    path: str
    cell: int
    line: int
    column: int
    code: str
    message: str

    def where(self) -> str:
        return f"{self.path}:{f'cell {self.cell}:' if self.cell else ''}{self.line}:{self.column}"


@dataclass(frozen=True)
class Unreadable:
    """A file that was not checked, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class LintOutcome:
    """What a run found."""

    files: int
    findings: tuple[LintFinding, ...]
    unreadable: tuple[Unreadable, ...]


@dataclass(frozen=True)
class _Text:
    """A file's Python: for a notebook its code cells one after the other."""

    code: str
    cells: tuple[int, ...] = ()
    """The first line of each cell."""

    def place(self, line: int) -> tuple[int, int]:
        """(cell, line in it); cell 0 for a plain file."""
        cell = sum(first <= line for first in self.cells)
        return (cell, line - self.cells[cell - 1] + 1) if cell else (0, line)


def lint(paths: Sequence[Path], chosen: Sequence[Rule]) -> LintOutcome:
    """Check every Python file and notebook among and under `paths`."""
    files = discover(paths)
    findings: list[LintFinding] = []
    unreadable: list[Unreadable] = []
    for path in files:
        try:
            text = _read(path)
            source = Source(_parsed(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError, OSError) as error:
            unreadable.append(Unreadable(str(path), _reason(error)))
        else:
            findings += _check(str(path), text, source, chosen)
    return LintOutcome(len(files), tuple(sorted(findings)), tuple(unreadable))


def discover(paths: Sequence[Path]) -> list[Path]:
    """The files to check. A path that is not there, or has nothing to check, is an error: silence would look clean."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            under = sorted(_walk(path))
            if not under:
                raise InputError(f"There is no Python file or notebook under '{path}'. Name the folder of your code.")
            found.update(dict.fromkeys(under))
        elif not path.exists():
            raise InputError(f"'{path}' does not exist; expected a Python file, a notebook or a folder.")
        elif path.suffix not in SUFFIXES:
            raise InputError(f"'{path}' is neither a Python file (.py) nor a notebook (.ipynb).")
        else:
            found[path] = None
    return list(found)


def _walk(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        # Hidden folders, caches and virtual environments are not the user's code.
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__")) and not Path(where, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(where, name) for name in names if name.endswith(SUFFIXES) and not name.startswith("."))


def _parsed(text: _Text) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "invalid escape sequence" in the user's file is not ours to report
        try:
            return ast.parse(text.code)
        except SyntaxError as error:
            cell, line = text.place(error.lineno or 1)
            raise ValueError(f"syntax error in {f'cell {cell}, ' if cell else ''}line {line}: {error.msg}") from error


def _check(path: str, text: _Text, source: Source, chosen: Iterable[Rule]) -> list[LintFinding]:
    ignored = _ignored(text.code)
    found = {}
    for rule in chosen:
        for node, message in rule.find(source):
            silenced = {code for line in _lines(source, node) for code in ignored.get(line, ())}
            if not silenced & {rule.code, "*"}:
                cell, line = text.place(node.lineno)
                found[node, rule.code] = LintFinding(path, cell, line, node.col_offset + 1, rule.code, message)
    return list(found.values())


def _read(path: Path) -> _Text:
    content = path.read_bytes()
    if path.suffix != ".ipynb":
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return _Text(io.TextIOWrapper(io.BytesIO(content), encoding).read())
    notebook = json.loads(content)
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise ValueError("it is no notebook of format 4: it has no list of cells")
    lines: list[str] = []
    firsts = []
    for cell in notebook["cells"]:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            firsts.append(len(lines) + 1)
            code = cell.get("source", "")
            code = "".join(code) if isinstance(code, list) else str(code)
            is_python = not code.lstrip().startswith("%%")
            lines += [_python(line) if is_python else "" for line in code.split("\n")]
    return _Text("\n".join(lines), tuple(firsts))


def _python(line: str) -> str:
    """Magics and shell lines of a notebook become `pass`, at the same indentation."""
    bare = line.lstrip()
    return line[: len(line) - len(bare)] + "pass" if bare.startswith(("%", "!", "?")) else line


def _ignored(code: str) -> dict[int, set[str]]:
    """The codes each line says to ignore; "*" for all."""
    found: dict[int, set[str]] = {}
    if not IGNORE.search(code):  # Reading tokens takes longer than parsing.
        return found
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        match = IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            named = {word.upper() for word in re.split(r"[,\s]+", match[1]) if word} if match[1] is not None else {"*"}
            found[token.start[0]] = named
    return found


def _lines(source: Source, node: ast.expr | ast.stmt | ast.excepthandler) -> set[int]:
    """The lines on which a comment speaks of a finding: those of its statement, of a block only the heading."""
    statement: ast.AST = node
    for outer in source.above(node):
        if isinstance(statement, ast.stmt | ast.excepthandler):
            break
        statement = outer
    first: int = statement.lineno  # type: ignore[attr-defined]
    body = getattr(statement, "body", None)
    last = body[0].lineno - 1 if body else statement.end_lineno  # type: ignore[attr-defined]
    return set(range(first, max(first, last) + 1))


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "its expressions are nested too deeply"
    return str(error)
