"""The file-name catalog: what it finds, what it reads without importing, and clashes with other packages."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from walkback.cli.main import COMMANDS, main
from walkback.core import catalog
from walkback.core.catalog import Catalog, describe_module
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.data.catalog import DATA_SETS
from walkback.nets import ARCHS

CATALOGS = [RULES, ARCHS, DATA_SETS, COMMANDS]


@pytest.fixture
def register(monkeypatch):
    """Makes other packages register names, as (name, module) pairs."""

    def make(*points):
        found = [importlib.metadata.EntryPoint(name, module, "any") for name, module in points]
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found)
        catalog._modules_of.cache_clear()

    yield make
    catalog._modules_of.cache_clear()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module of another package and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("things", CATALOGS, ids=lambda things: things.kind)
def test_every_name_can_be_got_and_described(things):
    names = things.names()
    assert names
    assert names == sorted(names)
    for name, entry in zip(names, things.entries(), strict=True):
        assert things.get(name) is not None
        assert entry.name == name
        assert entry.module == f"{things.package}.{name}"
        assert entry.summary.endswith((".", "?")), f"{name}: a summary is one sentence on one line"


def test_the_rules_we_compare_with_are_there():
    assert {"bp", "fa", "dfa", "sham"} <= set(RULES.names())


def test_every_rule_says_where_it_comes_from():
    for entry in RULES.entries():
        assert {"Citation", "Feedback", "State", "Exact"} <= entry.facts.keys(), entry.name


def test_facts_are_the_docstrings_key_lines_and_nothing_else(module):
    source = '"""A thing.\n\nCitation: Someone: a book, 1986\nNot a fact: no\nplain line\nState: none\n"""\n'
    entry = describe_module("thing", module("described_thing", source))
    assert entry.summary == "A thing."
    assert entry.facts == {"Citation": "Someone: a book, 1986", "State": "none"}


def test_a_module_without_docstring_is_described_by_nothing(module):
    entry = describe_module("thing", module("silent_thing", "RULE = 1\n"))
    assert (entry.summary, entry.facts) == ("", {})


def test_describing_does_not_import(module):
    describe_module("thing", module("explosive_thing", '"""Bang."""\nraise SystemError("imported")\n'))
    assert "explosive_thing" not in sys.modules


def test_an_unknown_name_gets_a_suggestion():
    with pytest.raises(InputError, match=r"^Unknown method 'dff'\. Did you mean 'dfa'\? Known: .*bp.*\.$"):
        RULES.get("dff")


def test_another_package_adds_a_rule(register, module):
    register(("mine", module("my_rule", '"""My rule."""\nRULE = "the rule"\n')))
    assert "mine" in RULES.names()
    assert RULES.get("mine") == "the rule"
    assert next(entry for entry in RULES.entries() if entry.name == "mine").summary == "My rule."


def test_another_package_adds_a_command(register, module, capsys):
    source = '"""Say hello."""\ndef add_arguments(parser): ...\ndef run(args):\n    print("hello")\n    return 0\n'
    register(("greet", module("greeting_command", source)))
    assert main(["greet"]) == 0
    assert capsys.readouterr().out == "hello\n"


def test_a_package_must_not_take_a_name_of_ours(register):
    register(("dfa", "elsewhere.dfa"))
    with pytest.raises(InputError, match=r"'elsewhere\.dfa' registers 'dfa' in 'walkback\.rules'.*uninstall"):
        RULES.names()


def test_two_packages_must_not_take_one_name(register):
    register(("mine", "one.rule"), ("mine", "two.rule"))
    with pytest.raises(InputError, match=r"Two installed packages register 'mine'.*'one\.rule' and 'two\.rule'"):
        RULES.names()
    register(("mine", "one.rule"), ("mine", "one.rule"))
    assert "mine" in RULES.names()


@pytest.mark.parametrize("name", ["vanished_module", "vanished_package.module"])
def test_a_registered_module_that_is_gone_is_a_sentence(register, name):
    register(("mine", name))
    with pytest.raises(InputError, match=f"'mine' of the package '{name}' could not be imported"):
        RULES.get("mine")
    with pytest.raises(InputError, match=f"The module '{name}' cannot be found"):
        RULES.entries()


def test_a_registered_module_without_the_thing_is_a_sentence(register, module):
    register(("mine", module("empty_rule", "")))
    with pytest.raises(InputError, match="'mine' of the package 'empty_rule' defines no RULE"):
        RULES.get("mine")


def test_hidden_files_are_no_things(tmp_path, monkeypatch):
    package = tmp_path / "some_catalog"
    package.mkdir()
    for name in ("__init__", "_helper", "thing"):
        (package / f"{name}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert Catalog("thing", "some_catalog", "THING", "some.group").names() == ["thing"]


def test_listings_need_no_torch():
    code = """if True:
        import sys
        from walkback.credit import RULES
        from walkback.data.catalog import DATA_SETS
        from walkback.nets import ARCHS
        for things in (RULES, ARCHS, DATA_SETS):
            assert things.entries()
        sys.exit("torch" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
