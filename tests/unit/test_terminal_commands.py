"""Commands that print what is stored, and the completion of command lines."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

import fake_audit
import pytest

from walkback.cli.completion_scripts import completion_script
from walkback.cli.main import COMMANDS, GROUPS, main, parser_of
from walkback.credit import RULES


@pytest.fixture
def cards(tmp_path, monkeypatch):
    """The cards of two methods with two seeds, in ./runs of an own folder."""
    for report in fake_audit.reports(2):
        report.save(tmp_path / "runs" / f"{report.method_name}_s{report.context['seed']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


class TestShow:
    def test_a_folder_is_shown_with_a_line_for_each_method(self, cards, capsys):
        assert main(["show", "runs"]) == 0
        heads = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[:2]]
        assert [name for _, name in heads] == ["bp", "fa"]

    def test_one_card_is_shown_verdict_first_with_its_checks(self, cards, capsys):
        assert main(["show", str(cards / "fa_s2" / "report.json")]) == 0
        shown = capsys.readouterr().out
        card = json.loads((cards / "fa_s2" / "report.json").read_text())
        assert shown.splitlines()[0].split()[1] == "fa"
        for check in card["checks"]:
            assert check["id"] in shown or check["name"] in shown
        assert "Provenance" not in shown
        assert main(["show", "fa_s2", "--full"]) == 0
        assert card["hash"] in capsys.readouterr().out

    def test_a_short_name_is_looked_up_in_the_runs_folder(self, cards, capsys):
        assert main(["show", "fa_s2", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["claim"]["seed"] == 2
        assert main(["show", "fa"]) == 3
        assert "is the beginning of 2 runs" in capsys.readouterr().err

    def test_nothing_heavy_is_imported(self, cards):
        code = (
            "import sys; from walkback.cli.main import main; main(['show', 'runs']); sys.exit('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class TestColours:
    @pytest.mark.parametrize(
        ("extra", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
    )
    def test_verdicts_are_coloured_in_a_terminal_that_wants_it(self, cards, extra, coloured):
        outer, inner = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        words = [sys.executable, "-m", "walkback", "show", "runs"]
        subprocess.run(words, stdout=inner, env={**kept, "TERM": "xterm", **extra}, check=True)
        shown = os.read(outer, 1 << 16).decode()
        os.close(inner)
        os.close(outer)
        assert shown.startswith("\033[1;32m✓\033[0m" if coloured else "✓")
        assert coloured == ("\033" in shown)

    def test_a_file_gets_no_colours(self, cards, capsys):
        main(["show", "runs"])
        assert "\033" not in capsys.readouterr().out


class TestListing:
    def test_without_arguments_the_runs_are_listed_or_a_hint_is_given(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        assert main(["ls"]) == 0
        assert "walkback train" in capsys.readouterr().out
        (tmp_path / "runs").mkdir()
        assert main(["ls"]) == 0
        assert "no runs" in capsys.readouterr().out

    def test_every_method_has_one_line(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        main(["ls", "methods"])
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[1 : 1 + len(RULES.names())]] == RULES.names()
        assert max(map(len, lines)) <= 80

    def test_one_entry_has_its_details(self, capsys):
        main(["ls", "methods", "dfa"])
        shown = capsys.readouterr().out
        assert "citation: " in shown
        assert "drtp" not in shown

    def test_lint_without_arguments_checks_this_folder(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "a.py").write_text("x = 1\n")
        assert main(["lint"]) == 0
        assert "1 file" in capsys.readouterr().out


class TestHelp:
    def test_every_command_is_in_one_group(self, capsys):
        named = [name for names in GROUPS.values() for name in names]
        assert sorted(named) == COMMANDS.names()
        main(["--help"])
        shown = capsys.readouterr().out
        assert all(len(re.findall(rf"^  {name} ", shown, re.MULTILINE)) == 1 for name in COMMANDS.names())

    @pytest.mark.parametrize("name", COMMANDS.names())
    def test_every_option_has_a_help_text_and_no_list_as_default(self, name):
        parser = parser_of(name)
        assert all(action.help for action in parser._actions)
        assert "(default: [" not in parser.format_help()
        assert "(default: (" not in parser.format_help()

    @pytest.mark.parametrize("name", ["train", "audit", "bench"])
    def test_both_spellings_of_methods_are_accepted(self, name):
        first = ["rules"] if name == "bench" else []
        for word in ("--method", "--methods"):
            assert parser_of(name).parse_args([*first, word, "bp", "fa"]).methods == ["bp", "fa"]


@pytest.fixture(scope="module")
def script():
    return completion_script("bash")


class TestCompletion:
    @pytest.mark.parametrize(
        ("words", "offered"),
        [
            (["di"], {"diagnose"}),
            (["train", "--method", "bp", "dr"], {"drtp"}),
            (["audit", "--protocol", ""], {"claims", "three", "four"}),
            (["show", "--fu"], {"--full"}),
            (["show", ""], set()),
            (["ls", "meth"], {"methods"}),
            (["ls", "methods", "drt"], {"drtp"}),
            (["completion", ""], {"bash", "zsh", "fish"}),
        ],
    )
    def test_bash_completes_commands_options_and_names(self, script, words, offered):
        line = " ".join(f"'{word}'" for word in ["walkback", *words])
        ask = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _walkback; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == offered
        assert done.stderr == ""

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_every_command_and_option_is_in_the_script_and_its_syntax_is_right(self, shell, capsys):
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        for name in COMMANDS.names():
            assert name in script
            options = [option for action in parser_of(name)._actions for option in action.option_strings]
            mark = "-l " if shell == "fish" else "--"
            assert all(mark + option[2:] in script for option in options if option.startswith("--"))
        if any(os.access(f"{folder}/{shell}", os.X_OK) for folder in os.environ["PATH"].split(":")):
            done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
