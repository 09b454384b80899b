"""Find files, parse them, run the rules and drop the findings that comments say to ignore."""

from __future__ import annotations

import ast
import io
import os
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from walkback.core.errors import InputError
from walkback.core.reading.json_text import parse_json, require_object
from walkback.core.reading.regular_files import read_bytes
from walkback.linting.rule import Rule
from walkback.linting.source import LONGEST_CHECK_S, CheckTooLong, Source

SUFFIXES = (".py", ".ipynb")
MOST_CODE = 2 * 2**20
"""Characters of Python code in a file that is checked; its tree takes some hundred times as many bytes."""
LARGEST_FILE = 64 * 2**20
"""Bytes of a file that is read: notebooks hold images."""
_NOT_CHECKED = (
    SyntaxError,
    ValueError,
    LookupError,
    RecursionError,
    MemoryError,
    OSError,
    InputError,
    tokenize.TokenError,
    CheckTooLong,
)
"""What reading and parsing a file of any content can raise."""
IGNORE = re.compile(r"#\s*walkback:\s*ignore(?:\[([^\]]*)\])?(?!\w)")


@dataclass(frozen=True, order=True)
class LintFinding:
    """One problem and its place. In a notebook `cell` counts code cells from 1 and `line` counts within the cell."""

    path: str
    cell: int
    line: int
    column: int
    code: str
    message: str

    def where(self) -> str:
        """The place as `path:line:column`, in a notebook `path:cell N:line:column`."""
        return f"{self.path}:{f'cell {self.cell}:' if self.cell else ''}{self.line}:{self.column}"


@dataclass(frozen=True)
class Unreadable:
    """A file that was not checked, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class LintOutcome:
    """The result of a run: how many files, the findings, and the files that were not checked."""

    files: int
    findings: tuple[LintFinding, ...]
    unreadable: tuple[Unreadable, ...]


@dataclass(frozen=True)
class _PythonText:
    """The Python text of a file; for a notebook, its code cells joined."""

    code: str
    cells: tuple[int, ...] = ()
    """The first line of each cell."""

    def locate(self, line: int) -> tuple[int, int]:
        """(cell, line in the cell) of a line of `code`; cell 0 for a Python file."""
        cell = sum(first <= line for first in self.cells)
        return (cell, line - self.cells[cell - 1] + 1) if cell else (0, line)


def lint(paths: Sequence[Path], chosen: Sequence[Rule]) -> LintOutcome:
    """Check every Python file and notebook among and under `paths` with these rules."""
    files = discover(paths)
    findings: list[LintFinding] = []
    unreadable: list[Unreadable] = []
    for path in files:
        try:
            text = _read(path)
            source = Source(_parse(text))
            ignored = _ignored_codes(text.code)
        except _NOT_CHECKED as error:
            unreadable.append(Unreadable(str(path), _reason(error)))
            continue
        try:
            findings += _check(str(path), text, source, chosen, ignored)
        except (RecursionError, MemoryError, CheckTooLong) as error:
            unreadable.append(Unreadable(str(path), _reason(error)))
    return LintOutcome(len(files), tuple(sorted(findings)), tuple(unreadable))


def discover(paths: Sequence[Path]) -> list[Path]:
    """The files to check. A path that is missing or has nothing to check is an error: no output would read as clean."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            files = sorted(_walk(path))
            if not files:
                raise InputError(f"There is no Python file or notebook under '{path}'. Name the folder of your code.")
            found.update(dict.fromkeys(files))
        elif not path.exists():
            raise InputError(f"'{path}' does not exist; expected a Python file, a notebook or a folder.")
        elif path.suffix not in SUFFIXES:
            raise InputError(f"'{path}' is neither a Python file (.py) nor a notebook (.ipynb).")
        else:
            found[path] = None
    return list(found)


def _walk(folder: Path) -> Iterator[Path]:
    """Python files and notebooks under a folder, without hidden folders, caches and virtual environments."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith((".", "__pycache__")) and not Path(parent, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(parent, name) for name in names if name.endswith(SUFFIXES) and not name.startswith("."))


def _parse(text: _PythonText) -> ast.Module:
    if len(text.code) > MOST_CODE:
        raise ValueError(f"it has more than the {MOST_CODE // 2**20} MiB of code that are checked")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as "invalid escape sequence": not what this linter reports
        try:
            return ast.parse(text.code)
        except SyntaxError as error:
            cell, line = text.locate(error.lineno or 1)
            raise ValueError(f"syntax error in {f'cell {cell}, ' if cell else ''}line {line}: {error.msg}") from error


def _check(
    path: str, text: _PythonText, source: Source, chosen: Iterable[Rule], ignored: dict[int, set[str]]
) -> list[LintFinding]:
    found = {}
    for rule in chosen:
        for node, message in rule.find(source):
            ignored_here = {code for line in _comment_lines(source, node) for code in ignored.get(line, ())}
            if not ignored_here & {rule.code, "*"}:
                cell, line = text.locate(node.lineno)
                found[node, rule.code] = LintFinding(path, cell, line, node.col_offset + 1, rule.code, message)
    return list(found.values())


def _read(path: Path) -> _PythonText:
    # The user names the files, or keeps them in the folder of the code.
    content = read_bytes(path, _unreadable, limit=LARGEST_FILE, follow=True)
    if path.suffix != ".ipynb":
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return _PythonText(io.TextIOWrapper(io.BytesIO(content), encoding).read())
    notebook = require_object(parse_json(content, _unreadable), _unreadable)
    if not isinstance(notebook.get("cells"), list):
        raise ValueError("it is no notebook of format 4: it has no list of cells")
    lines: list[str] = []
    first_lines = []
    for cell in notebook["cells"]:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            first_lines.append(len(lines) + 1)
            code = cell.get("source", "")
            code = "".join(map(str, code)) if isinstance(code, list) else str(code)
            is_python = not code.lstrip().startswith("%%")
            lines += [_without_magic(line) if is_python else "" for line in code.split("\n")]
    return _PythonText("\n".join(lines), tuple(first_lines))


def _unreadable(why: str) -> InputError:
    return InputError(f"it {why}")


def _without_magic(line: str) -> str:
    """A notebook's line; magics and shell commands are replaced by `pass` at the same indentation."""
    bare = line.lstrip()
    return line[: len(line) - len(bare)] + "pass" if bare.startswith(("%", "!", "?")) else line


def _ignored_codes(code: str) -> dict[int, set[str]]:
    """The codes to ignore, by the line of the comment; "*" for all codes."""
    found: dict[int, set[str]] = {}
    if not IGNORE.search(code):  # Tokenising takes longer than parsing.
        return found
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        match = IGNORE.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            named = {word.upper() for word in re.split(r"[,\s]+", match[1]) if word} if match[1] is not None else {"*"}
            found[token.start[0]] = named
    return found


def _comment_lines(source: Source, node: ast.expr | ast.stmt | ast.excepthandler) -> set[int]:
    """The lines where a comment applies to a finding: those of its statement; of a block, only its heading."""
    statement: ast.AST = node
    for outer in source.ancestors(node):
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
    if isinstance(error, CheckTooLong):
        return f"its check took longer than {LONGEST_CHECK_S:.0f} s"
    return str(error)
