"""The wheel: what it contains, that it works installed and merely unpacked, and that it leaves other packages alone.
The source distribution: that the wheel is built from it and that its tests run in it, without results."""

from __future__ import annotations

import email
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def python(*words: str | Path, cwd: Path, path: Path | None = None, exe: Path | None = None) -> str:
    """Run Python in `cwd` with only `path` on PYTHONPATH; its output, or a failure with it."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [exe or sys.executable, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    python("-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("walkback-*.whl")
    return found


@pytest.fixture(scope="module")
def source(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    (found,) = built.glob("walkback-*.tar.gz")
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(found) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, what it declares to need, what that needs, and nothing else. Its packages are
    links to those of this environment, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("empty")
    python("-m", "venv", "--without-pip", folder, cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    python("-m", "pip", "--python", folder, "install", "--quiet", "--no-deps", wheel, cwd=folder)
    for name in closure(metadata(wheel).get_all("Requires-Dist")):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))))
    return folder


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def closure(needed: list[str]) -> set[str]:
    """The names of the distributions that are needed, directly or indirectly, without extras."""
    found: set[str] = set()
    waiting = [Requirement(line) for line in needed]
    while waiting:
        each = waiting.pop()
        if each.name.lower() not in found and (each.marker is None or each.marker.evaluate({"extra": ""})):
            found.add(each.name.lower())
            waiting += [Requirement(line) for line in Distribution.from_name(each.name).requires or ()]
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked into a folder, as on a GPU node without a package index."""
    folder = tmp_path_factory.mktemp("site")
    python("-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, wheel, cwd=folder)
    return folder


def test_the_wheel_has_two_packages_and_no_protocol(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"walkback", "walkback_papers"}


def test_data_files_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()]
    kept = {name for name in files if "__pycache__" not in name}
    assert kept <= names


def test_the_page_on_an_index_has_no_link_that_leads_nowhere(wheel: Path) -> None:
    """There is no address that a relative link could be completed with."""
    text = metadata(wheel).get_payload()
    assert "May you claim" in str(metadata(wheel)["Summary"])
    assert "docs/methods.md" not in text
    assert "eighteen methods" in text
    assert [target for target in re.findall(r"\]\(([^)]*)\)", text) if not re.match("https?://|#", target)] == []


def test_the_source_distribution_has_what_its_tests_need_and_no_results(source: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    kept = {name for name in tracked if name and not name.startswith("results/")}
    assert kept <= {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert not (source / "results").exists()


def test_tests_run_in_the_source_distribution(source: Path) -> None:
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "tests collected" in python(*pytest_, "--collect-only", "tests", cwd=source, path=source / "src")
    files = ("tests/e2e/test_committed_results.py", "tests/unit/test_configuration.py", "tests/e2e/test_docs.py")
    told = python(*pytest_, *files, "-k", "committed or digests or link_targets", cwd=source, path=source / "src")
    assert "passed" in told
    assert re.search(r"SKIPPED.*results/ is not here", told)


@pytest.mark.parametrize("extra", [(), ("lint", "--help"), ("ls", "methods")], ids=["bare", "lint", "ls"])
def test_the_command_starts_in_an_empty_environment(empty: Path, tmp_path: Path, extra: tuple[str, ...]) -> None:
    assert python("-m", "walkback", *(extra or ("--help",)), cwd=tmp_path, exe=empty / "bin" / "python")


def test_a_method_is_trained_judged_and_shown_in_an_empty_environment(empty: Path, tmp_path: Path) -> None:
    exe = empty / "bin" / "walkback"
    small = ("--arch", "resmlp:d=16,depth=2", "--data", "prototypes", "--epochs", "1", "--device", "cpu")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run([exe, *words], cwd=tmp_path, env=clean, capture_output=True, text=True)

    done = command("audit", "--methods", "bp", "dfa", *small, "--seeds", "1", "--out", "out")
    assert done.returncode in (0, 1, 2), done.stderr
    assert (tmp_path / "out" / "audit.html").is_file()
    runs = [json.loads(line) for line in command("ls", "runs", "out", "--json").stdout.splitlines()]
    assert {run["method"] for run in runs} >= {"bp", "dfa"}
    (tmp_path / "code.py").write_text("def length(gradient):\n    return gradient.norm(-1)\n")
    assert "WB001" in command("lint", "code.py").stdout


@pytest.mark.parametrize("command", ["study", "reproduction", "quote", "audit", "train", "lint", "watch", "demo"])
def test_commands_work_from_a_target_folder(site: Path, tmp_path: Path, command: str) -> None:
    assert "usage" in python("-m", "walkback", command, "--help", cwd=tmp_path, path=site)


def test_the_copy_in_the_target_folder_is_used(site: Path, tmp_path: Path) -> None:
    code = "import walkback, walkback_papers; print(walkback.__file__, walkback_papers.__file__)"
    assert python("-c", code, cwd=tmp_path, path=site).count(str(site)) == 2
    assert "primary-audit" in python("-m", "walkback", "ls", "studies", cwd=tmp_path, path=site)


def test_a_study_runs_from_a_target_folder(site: Path, tmp_path: Path) -> None:
    words = ("study", "null-choice", "--scale", "smoke", "--out", "s", "--dry-run")
    assert "runs" in python("-m", "walkback", *words, cwd=tmp_path, path=site)


def test_a_checkout_that_is_not_installed_has_the_papers_commands(tmp_path: Path) -> None:
    """Entry points come from its pyproject.toml; `-S` hides what is installed, and the command's help needs nothing."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); from walkback.core.plugins import registered; "
        "print([point.name for point in registered('walkback.commands')])"
    )
    assert "study" in python("-S", "-c", code, cwd=tmp_path)


def test_uninstalling_walkback_leaves_another_protocol_package_alone(wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "src" / "protocol").mkdir(parents=True)
    (other / "src" / "protocol" / "__init__.py").write_text("OWNER = 'somebody else'\n")
    (other / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "somebody-elses-protocol"\nversion = "1"\n'
        '[tool.hatch.build.targets.wheel]\npackages = ["src/protocol"]\n'
    )
    python("-m", "venv", tmp_path / "env", cwd=tmp_path)
    exe = tmp_path / "env" / "bin" / "python"
    python("-m", "pip", "install", "--quiet", "--no-deps", other, wheel, cwd=tmp_path, exe=exe)
    python("-m", "pip", "uninstall", "--quiet", "--yes", "walkback", cwd=tmp_path, exe=exe)
    assert python("-c", "import protocol; print(protocol.OWNER)", cwd=tmp_path, exe=exe).strip() == "somebody else"
