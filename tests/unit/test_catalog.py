"""Catalogs: items and their descriptions, listing without imports, and name clashes with other packages."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from walkback.cli.main import COMMANDS, main
from walkback.core import catalog, plugins
from walkback.core.catalog import Catalog, describe_module
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.data.catalog import DATA_SETS
from walkback.nets import ARCHS

CATALOGS = [RULES, ARCHS, DATA_SETS, COMMANDS]


@pytest.fixture
def register(monkeypatch):
    """Registers (name, module) pairs as entry points of other packages, in every group."""

    def make(*points):
        found = [importlib.metadata.EntryPoint(name, module, "any") for name, module in points]
        monkeypatch.setattr(plugins, "entry_points", lambda group: found)
        clear_caches()

    yield make
    monkeypatch.undo()
    clear_caches()


def clear_caches():
    catalog._module_names.cache_clear()
    plugins.registered.cache_clear()


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Writes a module outside walkback and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source)
        return name

    yield write
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("items", CATALOGS, ids=lambda items: items.kind)
def test_every_item_can_be_imported_and_described(items):
    names = items.names()
    registered = {point.name: point.module for point in plugins.registered(items.group)}
    assert names
    assert names == sorted(names)
    for name, entry in zip(names, items.entries(), strict=True):
        assert items.get(name) is not None
        assert entry.name == name
        assert entry.module == registered.get(name, f"{items.package}.{name}")
        assert entry.summary.endswith((".", "?")), f"{name}: a summary is one sentence on one line"


def test_the_reference_rules_are_in_the_catalog():
    assert {"bp", "fa", "dfa", "sham"} <= set(RULES.names())


def test_every_rule_has_its_docstring_facts():
    for entry in RULES.entries():
        assert {"Citation", "Feedback", "State", "Exact"} <= entry.facts.keys(), entry.name


def test_facts_are_the_key_value_lines_of_the_docstring(module):
    source = '"""A thing.\n\nCitation: Someone: a book, 1986\nNot a fact: no\nplain line\nState: none\n"""\n'
    entry = describe_module("thing", module("described_thing", source))
    assert entry.summary == "A thing."
    assert entry.facts == {"Citation": "Someone: a book, 1986", "State": "none"}


def test_a_module_without_docstring_has_an_empty_description(module):
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


def test_a_package_cannot_register_a_name_of_walkback(register):
    register(("dfa", "elsewhere.dfa"))
    with pytest.raises(InputError, match=r"'elsewhere\.dfa' registers 'dfa' in 'walkback\.rules'.*uninstall"):
        RULES.get("dfa")


def test_two_packages_cannot_register_the_same_name(register):
    register(("mine", "one.rule"), ("mine", "two.rule"))
    with pytest.raises(InputError, match=r"Two installed packages register 'mine'.*'one\.rule' and 'two\.rule'"):
        RULES.get("mine")
    register(("mine", "one.rule"), ("mine", "one.rule"))
    assert "mine" in RULES.names()


@pytest.mark.parametrize("name", ["vanished_module", "vanished_package.module"])
def test_a_registered_module_that_is_missing_raises_input_error(register, name):
    register(("mine", name))
    with pytest.raises(InputError, match=f"'mine' of the package '{name}' could not be imported"):
        RULES.get("mine")
    (entry,) = (entry for entry in RULES.entries() if entry.name == "mine")
    assert f"broken: The module '{name}' cannot be found" in entry.summary


def test_a_registered_module_without_the_attribute_raises_input_error(register, module):
    register(("mine", module("empty_rule", "")))
    with pytest.raises(InputError, match="'mine' of the package 'empty_rule' defines no RULE"):
        RULES.get("mine")


BROKEN = {
    "missing": "vanished_module",
    "no syntax": '"""Mine."""\ndef f(:\n',
    "raises": '"""Mine."""\nraise SystemError("in here")\n',
    "another type": '"""Mine."""\nRULE = 3\n',
    "no name": "not a module!!",
    "binary": "\x00",
    "clash": "",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_package_breaks_no_listing_and_no_other_item(register, module, kind, capsys):
    source = BROKEN[kind]
    names_module = kind in ("missing", "no name")
    register(("dfa" if kind == "clash" else "mine", source if names_module else module("broken_thing", source)))
    for words in (["--help"], ["ls", "methods"], ["ls", "archs"]):
        assert main(words) == 0
    listed = capsys.readouterr().out
    assert {"train", "resmlp", "bp"} <= set(listed.split())
    assert ("broken: " in listed) is (kind not in ("raises", "another type"))
    assert RULES.get("bp")
    assert main(["train", "--method", "dfa" if kind == "clash" else "mine", "--dry-run"]) == 3
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "Traceback" not in printed.err


def test_files_that_start_with_an_underscore_are_no_items(tmp_path, monkeypatch):
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
        for catalog in (RULES, ARCHS, DATA_SETS):
            assert catalog.entries()
        sys.exit("torch" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
