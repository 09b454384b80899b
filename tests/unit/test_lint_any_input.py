"""The linter on any input: a finding, nothing, or a file that was not checked and why, but never a traceback."""

from __future__ import annotations

import json
import os
import random
import sysconfig
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkback.linting import engine, source
from walkback.linting.engine import lint
from walkback.linting.rule import rules

ALL = list(rules().values())
FOLDER = Path(__file__).parent
PIECES = [path.read_text() for path in sorted(FOLDER.glob("lint_*/*.py"))]
TOKENS = [
    "(",
    ")",
    "[",
    "]",
    ":",
    "=",
    ":=",
    "*",
    "**",
    "lambda: ",
    "not ",
    "None",
    "''",
    "\n",
    "    ",
    "@",
    "1e999",
    "g.grad",
]
UNUSUAL = {
    "attributes": "x = a" + ".b" * 3000,
    "subscripts": "x = a" + "[0]" * 600,
    "calls": "x = a" + "()" * 2500,
    "methods": "cos = g.grad" + ".detach()" * 900 + ".abs()",
    "sums": "x = " + "+".join(["a"] * 3000),
    "signs": "x = y.norm(" + "-" * 500 + "1)",
    "conditions": "if a:\n pass\n" + "elif b:\n pass\n" * 3000,
    "a long hexadecimal order": "x = y.norm(0x" + "f" * 5000 + ")",
    "an infinite order": "x = g.norm(-1e999)",
    "names bound to each other": "a = b\nb = a\na.norm(-1)\nx = a(1)",
    "a name bound to itself": "F = F.nn\nx = F.cosine_similarity(g.grad, g.grad)",
    "relative imports": "from . import *\nfrom .. import cosine_similarity\ncosine_similarity(g.grad, g.grad)",
    "a comment after a continuation": "x = 1 \\\n  # walkback: ignore\n",
    "form feeds": "\x0c\x0cx = y.norm(-1)  # walkback: ignore\x0c",
    "a null byte": "x = 1\0",
    "functions in functions": "".join(" " * i + "def f():\n" for i in range(95)) + " " * 95 + "pass",
}
ENCODED = {
    "utf-16": "x = 1\n".encode("utf-16"),
    "rot13, which is no text encoding": b"# coding: rot13\nk = 1\n",
    "an encoding that always fails": b"# coding: undefined\nk = 1\n",
    "base64": b"# coding: base64\nk = 1\n",
}
NOTEBOOKS = {
    "deep brackets": "[" * 100_000,
    "a number": "1e99999",
    "a surrogate": json.dumps({"cells": [{"cell_type": "code", "source": "x = '\ud800\0'"}]}),
    "sources that are no text": json.dumps(
        {"cells": [{"cell_type": "code", "source": [1, None, {}]}, {"cell_type": "code"}, 3, None]}
    ),
}


def check(path, content):
    """Findings and unchecked files of one file; a traceback fails the test."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    outcome = lint([path], ALL)
    assert outcome.files == 1
    return outcome


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_code(tmp_path, name):
    check(tmp_path / "a.py", UNUSUAL[name])


@pytest.mark.parametrize("name", ENCODED)
def test_unusual_encodings_are_named_as_not_checked(tmp_path, name):
    assert check(tmp_path / "a.py", ENCODED[name]).unreadable


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_unusual_notebooks(tmp_path, name):
    check(tmp_path / "a.ipynb", NOTEBOOKS[name])


def test_named_pipes_devices_and_broken_links_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "a.py")
    (tmp_path / "b.py").symlink_to("/dev/zero")
    (tmp_path / "c.py").symlink_to(tmp_path / "nothing")
    outcome = lint([tmp_path], ALL)
    assert [Path(file.path).name for file in outcome.unreadable] == ["a.py", "b.py", "c.py"]
    pipe, device, broken = (file.reason for file in outcome.unreadable)
    assert "regular file" in pipe
    assert "regular file" in device
    assert "No such file" in broken


def test_large_files_are_not_checked(tmp_path, monkeypatch):
    (unread,) = check(tmp_path / "code.py", b"x = 1\n" * 1_700_000).unreadable
    assert "2 MiB of code" in unread.reason
    monkeypatch.setattr(engine, "LARGEST_FILE", 2**20)
    (unread,) = check(tmp_path / "images.ipynb", b" " * (2**20 + 1)).unreadable
    assert f"{2**20 + 1:,} bytes" in unread.reason


def test_a_check_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LONGEST_CHECK_S", 0.2)
    started = time.process_time()
    (unread,) = check(tmp_path / "a.py", "def cosine(g):\n" + " a += 1\n b = a / c\n" * 2500).unreadable
    assert "took longer" in unread.reason
    assert time.process_time() - started < 10


@settings(max_examples=25, deadline=None, derandomize=True)
@given(content=st.binary(max_size=200) | st.text(max_size=200))
def test_random_content(tmp_path_factory, content):
    check(tmp_path_factory.getbasetemp() / "random.py", content)


def test_mutated_samples(tmp_path):
    """Samples with characters lost, tokens put in and lines exchanged; most still parse as Python."""
    draw = random.Random(0)
    parsed = 0
    for _ in range(150):
        lines = draw.choice(PIECES).splitlines()
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(lines))
            line = lines[at]
            column = draw.randint(0, len(line))
            mutated = (
                line[:column] + draw.choice(TOKENS) + line[column:],
                line[:column] + line[column + draw.randint(1, 8) :],
                draw.choice(lines),
                line.replace(draw.choice("abgx"), draw.choice(["g", "grad", "cos", "self"])),
            )
            lines[at] = draw.choice(mutated)
        parsed += not check(tmp_path / "mutated.py", "\n".join(lines)).unreadable
    assert parsed > 40


@pytest.mark.slow
def test_every_file_of_the_standard_library(tmp_path):
    outcome = lint([Path(sysconfig.get_paths()["stdlib"])], ALL)
    assert outcome.files > 500
    assert not [file for file in outcome.unreadable if "took longer" in file.reason]
