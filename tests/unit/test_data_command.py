"""The command `walkback data`, called through its own argument parser."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from fake_cifar import fake, python_files, sheet_files, write_folder

from walkback.cli.commands import data
from walkback.core.errors import EXIT_INPUT, InputError
from walkback.data import cifar_spec
from walkback.data.cifar_spec import CIFAR100


@pytest.fixture(autouse=True)
def small_data_sets(monkeypatch, tmp_path):
    """Small CIFARs, one embedded data set, and a temporary data folder."""
    names = types.SimpleNamespace(names=lambda: ["cifar10", "cifar100", "prototypes"])
    catalog = types.ModuleType("walkback.data.catalog")
    catalog.DATA_SETS = names
    monkeypatch.setitem(sys.modules, "walkback.data.catalog", catalog)
    for real in (cifar_spec.CIFAR10, CIFAR100):
        monkeypatch.setitem(cifar_spec.CIFAR_SPECS, real.name, fake(real)[0])
    monkeypatch.setenv("WALKBACK_DATA", str(tmp_path / "root"))


@pytest.fixture
def copy(tmp_path) -> Path:
    return write_folder(tmp_path / "copy", python_files(*fake()))


def walkback(*words: object) -> int:
    parser = argparse.ArgumentParser()
    data.add_arguments(parser)
    return data.run(parser.parse_args([str(word) for word in words]))


def test_get_then_verify_then_ls(copy, tmp_path, capsys):
    store = tmp_path / "root" / "cifar10"
    assert walkback("get", "cifar10", "--from", copy) == 0
    printed = capsys.readouterr()
    assert f"cifar10: ready in {store}" in printed.out
    assert str(copy) in printed.out
    assert printed.err == ""
    assert walkback("verify", "cifar10") == 0
    lines = capsys.readouterr().out.splitlines()
    hashes = cifar_spec.CIFAR_SPECS["cifar10"].hashes
    assert len(lines) == len(hashes)
    for line, (name, digest) in zip(lines, hashes.items(), strict=True):
        assert line.startswith(f"cifar10 {name}: ")
        assert line.endswith(digest)
    assert walkback("ls") == 0
    present, absent, embedded = capsys.readouterr().out.splitlines()
    assert re.match(rf"cifar10 +present in {store}.*{copy}", present)
    assert re.match(r"cifar100 +absent.*`walkback data get cifar100`", absent)
    assert re.match(r"prototypes +embedded", embedded)


def test_json_output_has_the_state_and_the_place(copy, tmp_path, capsys):
    root = tmp_path / "elsewhere"
    assert walkback("get", "cifar10", "--from", copy, "--root", root, "--json", "--quiet") == 0
    got = json.loads(capsys.readouterr().out)
    assert (got["name"], got["state"], got["place"]) == ("cifar10", "present", str(root / "cifar10"))
    assert walkback("verify", "cifar10", "--root", root, "--json") == 0
    assert json.loads(capsys.readouterr().out)["sha256"] == got["sha256"]
    assert walkback("ls", "--root", root, "--json") == 0
    listing = json.loads(capsys.readouterr().out)
    assert listing["root"] == str(root)
    assert {row["name"]: row["state"] for row in listing["data_sets"]} == {
        "cifar10": "present",
        "cifar100": "absent",
        "prototypes": "embedded",
    }


def test_quiet_prints_nothing(copy, capsys):
    assert walkback("get", "cifar10", "--from", copy, "--quiet") == 0
    assert walkback("get", "prototypes", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_embedded_data_sets_need_no_download(capsys):
    assert walkback("get", "prototypes") == 0
    assert walkback("verify", "prototypes") == 0
    out = capsys.readouterr().out
    assert re.fullmatch(r"prototypes: embedded.* to download\nprototypes: embedded.* to verify\n", out)


def test_other_formats_are_listed_and_verified_in_place(tmp_path, capsys):
    place = write_folder(tmp_path / "root" / "cifar100", sheet_files(*fake(CIFAR100)))
    assert walkback("ls") == 0
    assert re.search(rf"cifar100 +present in {place}", capsys.readouterr().out)
    assert walkback("verify", "cifar100") == 0


def test_a_damaged_store_is_reported_and_repaired_by_force(copy, tmp_path, capsys):
    walkback("get", "cifar10", "--from", copy)
    (tmp_path / "root" / "cifar10" / "test_labels.npy").unlink()
    capsys.readouterr()
    assert walkback("ls") == 0
    assert "repair it with `walkback data get cifar10 --force`" in capsys.readouterr().out
    for words in (["verify", "cifar10"], ["get", "cifar10", "--from", copy]):
        with pytest.raises(InputError, match=r"lacks test_labels\.npy.*--force") as caught:
            walkback(*words)
        assert caught.value.exit_code == EXIT_INPUT
    assert walkback("get", "cifar10", "--from", copy, "--force") == 0
    assert walkback("verify", "cifar10") == 0


def test_unknown_names_and_missing_paths_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"Unknown data set 'cifar1O'\. Did you mean 'cifar10'"):
        walkback("get", "cifar1O")
    with pytest.raises(InputError, match="Get it with `walkback data get cifar10`"):
        walkback("verify", "cifar10")
    with pytest.raises(InputError, match="nowhere' does not exist"):
        walkback("get", "cifar10", "--from", tmp_path / "nowhere")
    with pytest.raises(SystemExit):
        walkback()


def test_the_progress_bar_is_shown_on_a_terminal_only(monkeypatch, capsys):
    with data._bar("cifar10", quiet=False) as progress:
        assert progress is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with data._bar("cifar10", quiet=True) as progress:
        assert progress is None
    with data._bar("cifar10", quiet=False) as progress:
        assert progress is not None
        progress(5, 10)
    assert capsys.readouterr().out == ""


def test_the_command_imports_no_torch_or_numpy():
    code = "import sys, walkback.cli.commands.data; sys.exit(bool({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
