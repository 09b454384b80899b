"""The wheel: what it contains, that it works installed and merely unpacked, and that it leaves other packages alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    python("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (found,) = folder.glob("walkback-*.whl")
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
