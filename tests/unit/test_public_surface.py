"""What `import walkback` offers, what it imports, and options that are refused before anything is done."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import walkback as wb
from walkback.core.errors import InputError
from walkback.judge.options import JudgeOptions
from walkback.runs.train_runs import TrainOptions

SRC = Path(wb.__file__).parents[1]
SIZES = {"arch": "resmlp:d=8,depth=2", "data": "prototypes:train=64,test=32", "epochs": 1, "batch": 32}


def modules_after(code: str) -> list[str]:
    """The modules that a fresh Python has loaded after running `code`."""
    program = f"import sys\n{code}\nprint(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


def test_dir_lists_the_public_names_and_all_of_them_exist():
    assert dir(wb) == sorted(wb.__all__)
    assert all(getattr(wb, name) is not None for name in wb.__all__)
    with pytest.raises(AttributeError, match="Wtach"):
        _ = wb.Wtach


def test_public_classes_are_those_of_their_modules():
    from walkback.judge.report import DiagnosticReport
    from walkback.runs.store import Run

    assert wb.DiagnosticReport is DiagnosticReport
    assert wb.Run is Run


@pytest.mark.parametrize("function", [wb.train, wb.audit, wb.study, wb.diagnose, wb.verify], ids=lambda f: f.__name__)
def test_keywords_are_visible_to_editors(function):
    kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


def test_importing_walkback_imports_no_torch():
    assert "torch" not in modules_after("import walkback")


def test_diagnosing_a_model_imports_nothing_of_training_or_data():
    code = """
import torch, walkback
blocks = [torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)) for _ in range(2)]
model = torch.nn.Sequential(torch.nn.Linear(4, 8), *blocks, torch.nn.Linear(8, 3))
batches = [(torch.randn(128, 4), torch.randint(3, (128,))) for _ in range(8)]
walkback.diagnose(model, batches, headline_acc=0.5, frozen_baseline_acc=0.4)
"""
    loaded = [name for name in modules_after(code) if name.startswith("walkback")]
    assert "walkback.auditing.diagnose_model" in loaded
    rooms = ("walkback.training", "walkback.data", "walkback_papers", "walkback.bench", "walkback.sweeping")
    assert not [name for name in loaded if name.startswith(rooms)]


BAD_OPTIONS = [
    ({"driver": "flet"}, "driver", "flet", "fleet"),
    ({"device": "gpu"}, "device", "gpu", "cpu"),
    ({"max_seconds": "10"}, "max_seconds", "'10'", "number"),
    ({"max_seconds": -1.0}, "max_seconds", "-1.0", "0"),
    ({"checkpoint_seconds": None}, "checkpoint_seconds", "None", "number"),
    ({"memory": "2GiB"}, "memory", "2GiB", "bytes"),
    ({"memory": 0}, "memory", "0", "1"),
    ({"resume": "yes"}, "resume", "yes", "True"),
    ({"out": 3}, "out", "3", "folder"),
    ({"data_root": 3}, "data_root", "3", "folder"),
]


@pytest.mark.parametrize(("options", "name", "got", "expected"), BAD_OPTIONS)
@pytest.mark.parametrize("function", [wb.train, wb.audit], ids=lambda f: f.__name__)
def test_bad_options_are_refused_before_anything_is_trained(
    function, options, name, got, expected, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as refused:
        function("bp", **SIZES, **options)
    assert all(part in str(refused.value) for part in (name, got, expected))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "got"),
    [({"protocol": "five"}, "five"), ({"null": "shell"}, "shell"), ({"thresholds": {"null_z": 2}}, "null_z")],
)
def test_bad_ways_to_judge_are_refused_before_anything_is_measured(options, got, tmp_path):
    with pytest.raises(InputError, match=got):
        wb.audit("bp", out=tmp_path / "runs", **SIZES, **options)
    assert not (tmp_path / "runs").exists()

    def never(*_):
        raise AssertionError("the model was run")

    model = torch.nn.Linear(2, 2)
    model.forward = never
    with pytest.raises(InputError, match=got):
        wb.diagnose(model, never, **options)


def test_options_take_paths_as_text():
    options = TrainOptions(out="somewhere", data_root="data")
    assert (options.out, options.data_root) == (Path("somewhere"), Path("data"))
    assert JudgeOptions().protocol == "claims"


def test_an_unknown_keyword_is_named():
    with pytest.raises(TypeError, match="epoch"):
        wb.train("bp", epoch=3)


def test_params_and_model_are_the_same_arrays(tmp_path):
    (result,) = wb.train("bp", out=tmp_path, device="cpu", **SIZES)
    run = wb.load(result.path)
    assert run.params().keys() == run.model().keys()
    assert all((run.params()[name] == array).all() for name, array in run.model().items())


CATALOG_NAMES = {"ARCH", "BENCH", "CASE", "CHECK", "DATA_SET", "RULE", "STUDY", "add_arguments", "check", "find", "run"}
"""Names that a catalog or a command requires of each of its modules."""
WITH_A_REASON = {
    "T": "type variables",
    "main": "the entry of a program: `walkback.cli.main` and `walkback.sweeping.worker`",
}


def test_no_public_name_is_defined_in_two_modules():
    places = defaultdict(set)
    for path in SRC.rglob("*.py"):
        if "walkback" not in path.relative_to(SRC).parts[0]:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in _defined(node):
                if not name.startswith("_"):
                    places[name].add(str(path.relative_to(SRC)))
    twice = {name: sorted(files) for name, files in places.items() if len(files) > 1}
    assert {name: twice[name] for name in twice.keys() - CATALOG_NAMES - WITH_A_REASON.keys()} == {}


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    parts = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [part.id for part in parts if isinstance(part, ast.Name)]
