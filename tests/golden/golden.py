"""Record what a version of walkback computes and prints, and compare another version with it.

    python tests/golden/golden.py record golden.json     # with the version to compare with, on this machine
    python tests/golden/golden.py compare golden.json    # with the version at hand

Recorded: configurations, digests and weights of single and fleet trainings of every rule and network; audit cards;
what the commands print with --json; and a sha256 of every file that `walkback study all --render` writes from the
committed results. Weights depend on the processor and on the version of torch, so a record is compared on the machine
that made it. Only the public surface is used, so that the same script runs with both versions. Set PYTHONPATH to
choose the version.

`compare` prints every difference. It ends with exit code 0 where there is none, 1 where words differ and nothing else
does (each is printed, to be looked at), and 2 where a number, key, name or hash differs.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DATA = "prototypes:train=256,test=1024,dim=24"
NETWORKS = {
    "resmlp": ("resmlp:d=8,depth=2", DATA),
    "student_net": ("student_net:d=8,depth=2", DATA),
    "vit_mini": ("vit_mini:d=16,depth=2,heads=2", "tiles:train=128,test=128"),
    "small_cnn": ("small_cnn:width=4,depth=2", "tiles:train=128,test=128"),
}
METHODS = ("bp", "fa", "dfa:scale=unit_error,site=input", "kp")
GRID = ["--arch", "resmlp:d=8,depth=2", "--data", DATA, "--set", "batch=64", "lr=0.01", "--epochs", "2"]
CHANGING = {"seconds", "fleet_seconds", "started", "command", "walkback", "git_commit", "path", "out", "versions"}
"""Keys whose values are not a matter of the version's behaviour."""


def walkback(*words: str, cwd: Path) -> dict[str, Any]:
    """What a command prints on its standard output, and its exit code."""
    done = subprocess.run([sys.executable, "-m", "walkback", *words], cwd=cwd, capture_output=True, text=True)
    return {"exit": done.returncode, "out": _parsed(done.stdout), "err": "" if done.returncode < 3 else done.stderr}


def _parsed(text: str) -> Any:
    try:
        return [_stable(json.loads(line)) for line in text.splitlines()]
    except ValueError:
        return text.splitlines()


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in CHANGING}
    return [_stable(item) for item in value] if isinstance(value, list) else value


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def trained(folder: Path) -> dict[str, Any]:
    """Records, logs and weights of single and fleet trainings."""
    import walkback as wb

    rules = [row["name"] for row in walkback("ls", "methods", "--json", cwd=folder)["out"]]
    found: dict[str, Any] = {}
    jobs = [("rules", rules, *NETWORKS["resmlp"])]
    jobs += [(name, METHODS, *shape) for name, shape in NETWORKS.items()]
    for name, methods, arch, data in jobs:
        for driver in ("single", "fleet"):
            for method in methods:
                out = folder / name / driver / method.partition(":")[0]
                common = {"batch": 64, "lr": 0.01, "epochs": 2, "device": "cpu", "predict": False}
                try:
                    results = wb.train(method, arch=arch, data=data, seeds=[1, 2], driver=driver, out=out, **common)
                except wb.InputError as error:
                    found[f"{name}/{driver}/{method}"] = {"refused": str(error)}
                    continue
                for result in results:
                    run = wb.load(result.path)
                    files = {p.name: _sha(p) for p in sorted(Path(result.path).glob("*.safetensors"))}
                    found[f"{name}/{driver}/{run.name}"] = {
                        "record": _stable(run.record),
                        "log": _stable(run.log()),
                        "files": files,
                        "test_acc": result.test_acc,
                    }
    return found


def printed(folder: Path) -> dict[str, Any]:
    """What commands print, and the files they leave."""
    commands = {
        "audit": ["audit", "--methods", "bp", "dfa:scale=unit_error,site=input", *GRID, "--out", "audit", "--json"],
        "audit again": ["audit", "--methods", "bp", "dfa:scale=unit_error,site=input", *GRID, "--out", "audit",
                        "--resume", "--protocol", "four", "--threshold", "growth_fail=5", "--quiet"],
        "diagnose": ["diagnose", "audit", "--json"],
        "train": ["train", "--method", "fa", "--seeds", "1", *GRID, "--out", "runs", "--json"],
        "train twice": ["train", "--method", "fa", "--seeds", "1", *GRID, "--out", "runs", "--json"],
        "dry run": ["train", "--method", "fa", "dfa", *GRID, "--out", "other", "--dry-run"],
        "explain": ["explain"],
        "explain D2": ["explain", "D2"],
        "pitfalls": ["pitfalls", "1", "2", "9", "--json"],
        "pitfalls list": ["pitfalls", "--list"],
        "lint": ["lint", str(ROOT / "tests/unit/lint_samples"), "--json"],
        "bad method": ["train", "--method", "dff", *GRID],
        "bad setting": ["train", "--method", "dfa:scale=none", *GRID],
        "no run": ["diagnose", "nowhere"],
        **{f"ls {what}": ["ls", what, "--json"] for what in ("methods", "archs", "data", "diagnostics", "benches")},
        "ls studies": ["ls", "studies", "--json"],
        "ls runs": ["ls", "runs", "audit", "--json"],
    }  # fmt: skip
    found = {name: walkback(*words, cwd=folder) for name, words in commands.items()}
    for card in sorted((folder / "audit").glob("*/report.json")):
        found[f"verify {card.parent.name}"] = walkback("verify", str(card), str(card.parent), "--json", cwd=folder)
        found[f"render {card.parent.name}"] = walkback("render", str(card), "--format", "md", "--stdout", cwd=folder)
        found[f"checklist {card.parent.name}"] = walkback("checklist", str(card.parent), cwd=folder)
    return found


def rendered(folder: Path) -> dict[str, Any]:
    """Every page, table and figure of the committed results, told again from them."""
    copy = folder / "results"
    shutil.copytree(ROOT / "results/paper", copy)
    done = walkback("study", "all", "--scale", "paper", "--out", str(copy), "--render", cwd=folder)
    files = {
        str(path.relative_to(copy)): _sha(path)
        for path in sorted(copy.rglob("*"))
        if path.is_file() and path.relative_to(copy).parts[0] != "runs"
    }
    return {"exit": done["exit"], "files": files}


def taken() -> dict[str, Any]:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["COLUMNS"] = "120"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = {"trained": trained, "printed": printed, "rendered": rendered}
        chosen = os.environ.get("GOLDEN", ",".join(parts)).split(",")
        found: dict[str, Any] = {}
        for part in chosen:
            (folder / part).mkdir()
            found[part] = parts[part](folder / part)
        return json.loads(json.dumps(found).replace(name, "FOLDER"))


def differences(old: Any, new: Any, where: str = "") -> list[tuple[str, str, bool]]:
    """Each difference as (place, what, whether it is in words alone)."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted(old.keys() | new.keys()):
            if key not in old or key not in new:
                found.append((f"{where}/{key}", "only in the old" if key in old else "only in the new", False))
            else:
                found += differences(old[key], new[key], f"{where}/{key}")
        return found
    if isinstance(old, list) and isinstance(new, list):
        if all(isinstance(item, str) for item in [*old, *new]):
            changes = list(difflib.unified_diff(old, new, lineterm="", n=0))[2:]
            return [(where, "\n".join(changes), True)] if changes else []
        if len(old) != len(new):
            return [(where, f"{len(old)} items, now {len(new)}", False)]
        return [d for i, pair in enumerate(zip(old, new, strict=True)) for d in differences(*pair, f"{where}[{i}]")]
    if old == new:
        return []
    is_words = isinstance(old, str) and isinstance(new, str) and (" " in old or " " in new)
    return [(where, f"{old!r}\n  -> {new!r}", is_words)]


def main() -> int:
    what, name = sys.argv[1:]
    if what == "record":
        Path(name).write_text(json.dumps(taken()))
        return 0
    new = taken()
    old = {part: json.loads(Path(name).read_text())[part] for part in new}
    found = differences(old, new)
    for where, difference, is_words in found:
        print(f"{'words' if is_words else 'VALUE'} {where}\n  {difference}")
    print(f"{len(found)} differences, {sum(not words for _, _, words in found)} of them not in words alone")
    return 2 if any(not words for _, _, words in found) else 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
