"""The linter: every code flags its sample and nothing in its clean sample; files, comments, notebooks, exit codes."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

import pytest

from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.linting import LINTS
from walkback.linting.engine import discover, lint
from walkback.linting.rule import chosen_rules, codes, rules

SAMPLES = Path(__file__).parent / "lint_samples"
ROOT = Path(__file__).parents[2]
ALL = list(rules().values())
NORM = "import torch\n\n\ndef f(h):\n    return h.norm(-1){comment}\n"


@pytest.fixture
def write(tmp_path):
    def make(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return make


def found(path, only=None):
    """(line, code) of every finding in a file."""
    return [(finding.line, finding.code) for finding in lint([path], only or ALL).findings]


class TestRules:
    @pytest.mark.parametrize("code", rules())
    def test_flags_exactly_the_marked_lines_of_its_sample(self, code):
        path = SAMPLES / f"{code.lower()}_flagged.py"
        marked = [n for n, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# flagged")]
        assert marked
        assert sorted({line for line, _ in found(path, [rules()[code]])}) == marked

    @pytest.mark.parametrize("path", sorted(SAMPLES.glob("*_clean.py")), ids=lambda path: path.stem)
    def test_no_rule_flags_a_clean_sample(self, path):
        assert found(path) == []

    @pytest.mark.parametrize("code", rules())
    def test_has_a_clean_sample(self, code):
        assert (SAMPLES / f"{code.lower()}_clean.py").is_file()

    def test_every_sample_belongs_to_a_code(self):
        assert {path.name[:5].upper() for path in SAMPLES.glob("*.py")} == rules().keys()

    @pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.code)
    def test_docstring_has_summary_why_instead_and_known_pitfalls(self, rule):
        assert rule.summary.endswith(".")
        assert len(rule.why) > 40
        assert len(rule.instead) > 40
        assert set(rule.pitfalls) <= set(range(1, 22))

    def test_codes_are_numbered_without_gaps(self):
        assert list(rules()) == [f"WB{n:03d}" for n in range(1, len(LINTS.names()) + 1)]

    @pytest.mark.parametrize("path", sorted(SAMPLES.glob("*_flagged.py")), ids=lambda path: path.stem)
    def test_does_not_depend_on_how_a_module_is_imported(self, path, write):
        """`import x.y as z` and `from x import y` give the same findings."""
        text = path.read_text()
        code = path.name[:5].upper()
        renamed = text.replace("import torch.nn.functional as F", "from torch.nn import functional as fun")
        renamed = re.sub(r"\bF\.", "fun.", renamed).replace("import numpy as np", "import numpy")
        renamed = re.sub(r"\bnp\.", "numpy.", renamed)
        copy = write("copy.py", renamed)
        assert found(copy, [rules()[code]]) == found(path, [rules()[code]])

    def test_a_name_bound_in_the_file_is_not_the_module(self, write):
        text = "import torch\n\n\ndef f(torch, x):\n    return torch.norm(x, -1)\n"
        assert found(write("own.py", text)) == []
        assert found(write("real.py", text.replace("f(torch, x)", "f(x)"))) == [(5, "WB001")]

    def test_a_message_is_one_line(self):
        for finding in lint([SAMPLES], ALL).findings:
            assert "\n" not in finding.message
            assert len(finding.message) < 120


class TestComments:
    @pytest.mark.parametrize(
        ("comment", "is_found"),
        [
            ("", True),
            ("  # walkback: ignore", False),
            ("  # walkback: ignore[WB001]", False),
            ("  # walkback: ignore[wb002, WB001]", False),
            ("  #walkback:ignore[WB001] the order is meant", False),
            ("  # noqa  # walkback: ignore", False),
            ("  # walkback: ignore[WB002]", True),
            ("  # walkback: ignore[]", True),
            ("  # walkback: ignored", True),
        ],
    )
    def test_ignore_comment_applies_to_its_own_line(self, write, comment, is_found):
        assert bool(found(write("f.py", NORM.format(comment=comment)))) == is_found

    def test_ignore_comment_in_a_string_has_no_effect(self, write):
        assert found(write("f.py", NORM.format(comment=', "# walkback: ignore"')))

    def test_ignore_comment_applies_anywhere_in_the_statement(self, write):
        text = "import torch\nx = torch.norm(\n    y,\n    -1,  # walkback: ignore[WB001]\n)\nz = torch.norm(y, -1)\n"
        assert found(write("f.py", text)) == [(6, "WB001")]

    def test_ignore_comment_applies_to_a_block_on_its_heading_only(self, write):
        text = "try:\n    metric()\nexcept Exception:{0}\n    pass{1}\n"
        comment = "  # walkback: ignore"
        assert found(write("heading.py", text.format(comment, ""))) == []
        assert found(write("body.py", text.format("", comment))) == [(3, "WB008")]


class TestFiles:
    def test_folders_are_searched_without_hidden_ones_and_environments(self, write, tmp_path):
        kept = [write("a.py", ""), write("b/c.py", ""), write("b/d.ipynb", "{}")]
        for name in (".hidden/x.py", "__pycache__/x.py", "env/lib/x.py", "b/text.txt", ".x.py"):
            write(name, "")
        write("env/pyvenv.cfg", "")
        assert discover([tmp_path, kept[0]]) == kept

    def test_a_path_without_code_is_an_input_error(self, write, tmp_path):
        with pytest.raises(InputError, match=r"missing\.py.*does not exist"):
            discover([tmp_path / "missing.py"])
        with pytest.raises(InputError, match=r"data\.csv.*\.py.*\.ipynb"):
            discover([write("data.csv", "")])
        with pytest.raises(InputError, match=rf"no Python file.*{re.escape(str(tmp_path))}"):
            discover([tmp_path])

    def test_a_broken_file_does_not_stop_the_others(self, write, tmp_path):
        write("a.py", "def f(:\n")
        write("b.py", NORM.format(comment=""))
        write("c.py", "x = '\0'")
        write("d.ipynb", "[]")
        write("e.ipynb", "{")
        (tmp_path / "f.py").write_bytes(b"# \xff\n")
        (tmp_path / "g.py").write_bytes(b"# coding: martian\n")
        write("h.py", "x = " + "-" * 100_000 + "1\n")
        outcome = lint([tmp_path], ALL)
        assert outcome.files == 8
        assert [finding.code for finding in outcome.findings] == ["WB001"]
        assert [Path(file.path).name for file in outcome.unreadable] == BROKEN
        assert "syntax error in line 1" in outcome.unreadable[0].reason

    def test_other_encodings_are_read(self, tmp_path):
        path = tmp_path / "latin.py"
        path.write_bytes("# coding: latin-1\n# é\nx = y.norm(-1)\n".encode("latin-1"))
        assert found(path) == [(3, "WB001")]
        path.write_bytes(b"\xef\xbb\xbfx = y.norm(-1)\r\n")
        assert found(path) == [(1, "WB001")]

    def test_findings_in_notebooks_have_a_cell(self, write):
        cells = [
            {"cell_type": "markdown", "source": "y.norm(-1)"},
            {"cell_type": "code", "source": ["%matplotlib inline\n", "import torch"]},
            {"cell_type": "code", "source": "%%bash\nls -l"},
            {"cell_type": "code", "source": "if True:\n    !ls\nz = torch.norm(y, -1)"},
            {"cell_type": "code", "source": "w = torch.norm(y, -1)  # walkback: ignore"},
        ]
        path = write("n.ipynb", json.dumps({"cells": cells}))
        (finding,) = lint([path], ALL).findings
        assert (finding.cell, finding.line, finding.column) == (3, 3, 5)
        assert finding.where() == f"{path}:cell 3:3:5"
        broken = write("b.ipynb", json.dumps({"cells": [*cells, {"cell_type": "code", "source": "x\ny ="}]}))
        assert "cell 5, line 2" in lint([broken], ALL).unreadable[0].reason


BROKEN = ["a.py", "c.py", "d.ipynb", "e.ipynb", "f.py", "g.py", "h.py"]


class TestCommand:
    def test_exit_codes(self, write, capsys):
        clean, wrong = write("clean.py", "x = 1\n"), write("wrong.py", NORM.format(comment=""))
        broken = write("broken.py", "x = (\n")
        assert main(["lint", str(clean)]) == 0
        assert main(["lint", str(clean), str(wrong)]) == 1
        assert main(["lint", str(wrong), str(broken)]) == 1
        assert main(["lint", str(clean), str(broken)]) == 2
        capsys.readouterr()
        for words, part in (
            ([str(clean.parent / "missing")], "missing' does not exist"),
            ([str(clean), "--select", "WB999"], "'WB999'. Did you mean"),
            ([str(clean), "--select", "WB001", "--ignore", "wb001"], "--select and --ignore"),
            (["--explain", "WB999"], "'WB999'"),
        ):
            assert main(["lint", *words]) == 3
            assert part in capsys.readouterr().err

    def test_text_has_a_line_for_each_finding_and_unparsed_file(self, write, capsys):
        wrong, broken = write("wrong.py", NORM.format(comment="")), write("broken.py", "x = (\n")
        main(["lint", str(wrong), str(broken)])
        first, second, last = capsys.readouterr().out.splitlines()
        assert first.startswith(f"{wrong}:5:12 WB001 -1 ")
        assert first.endswith("dim=-1")
        assert second.startswith(f"{broken}: not checked: ")
        assert "line 1" in second
        assert last.startswith("1 finding in 2 files, 1 not checked.")
        assert "--explain" in last

    def test_json_has_place_why_and_instead(self, write, capsys):
        wrong, broken = write("wrong.py", NORM.format(comment="")), write("broken.py", "x = (\n")
        main(["lint", str(wrong), str(broken), "--json"])
        document = json.loads(capsys.readouterr().out)
        (finding,) = document["findings"]
        assert document["files"] == 2
        assert document["unreadable"][0]["path"] == str(broken)
        assert (finding["path"], finding["line"], finding["column"], finding["code"]) == (str(wrong), 5, 12, "WB001")
        rule = rules()["WB001"]
        assert (finding["why"], finding["instead"], finding["pitfalls"]) == (rule.why, rule.instead, [1])

    def test_select_and_ignore(self, write, capsys):
        text = "import torch\n\n\ndef f(g, a):\n    return g.norm(-1), torch.cosine_similarity(g.grad, a)\n"
        path = write("f.py", text)
        assert {code for _, code in found(path)} == {"WB001", "WB002"}
        main(["lint", str(path), "--select", "wb002", "--json"])
        assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["WB002"]
        main(["lint", str(path), "--ignore", "WB002", "--json"])
        assert [f["code"] for f in json.loads(capsys.readouterr().out)["findings"]] == ["WB001"]
        assert codes("WB001, wb002") == {"WB001", "WB002"}
        assert [rule.code for rule in chosen_rules("WB003,WB001", None)] == ["WB001", "WB003"]

    def test_explain_shows_the_texts_of_a_rule(self, capsys):
        assert main(["lint", "--explain"]) == 0
        assert [line[:5] for line in capsys.readouterr().out.splitlines()] == list(rules())
        assert main(["lint", "--explain", "wb014"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        rule = rules()["WB014"]
        for words in (rule.summary, rule.why, rule.instead, "Pitfall: 17"):
            assert words in shown

    def test_needs_no_torch(self):
        code = "import sys; from walkback.cli.main import main as m; m(sys.argv[1:]); sys.exit('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code, "lint", str(SAMPLES)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr


def test_in_walkback_itself_only_the_reproducers_of_pitfalls_are_flagged():
    """A reproducer pNN_... may be flagged only by a code whose pitfalls include NN."""
    for finding in lint([ROOT / "src"], ALL).findings:
        path = Path(finding.path)
        assert path.parent.name == "cases", finding
        assert int(path.stem[1:3]) in rules()[finding.code].pitfalls, finding


@pytest.mark.slow
def test_the_standard_library_is_clean():
    folders = [Path(module.__file__).parent for module in (asyncio, json, unittest)]
    outcome = lint(folders, ALL)
    assert outcome.files > 50
    assert (outcome.findings, outcome.unreadable) == ((), ())


def test_the_page_lists_every_code():
    text = (ROOT / "docs" / "linter.md").read_text().partition("<!-- variants -->")[0]
    rows = re.findall(r"^\| (WB\d+) \| (.*) \| (.*) \|$", text, re.MULTILINE)
    expected = [(rule.code, rule.summary, ", ".join(map(str, rule.pitfalls)) or "none") for rule in ALL]
    assert [(code, summary.replace("\\|", "|"), pitfalls) for code, summary, pitfalls in rows] == expected
