"""Invalid input gives one sentence on stderr and exit code 3, and changes no file."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import walkback
from dying import contents
from walkback.cli.main import main
from walkback.data.cifar_spec import SOURCE_FILE
from walkback.runs import store
from walkback.runs.train_runs import ProgressListener

SIZES = ["--data", "prototypes:train=256,test=64", "--arch", "resmlp:d=8,depth=2"]
TINY = [*SIZES, "--epochs", "2", "--set", "batch=32"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """An empty working folder with one file, so that any change is detected."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WALKBACK_DATA", str(tmp_path / "data"))
    (tmp_path / "mine.txt").write_text("mine")
    return tmp_path


@pytest.fixture
def refused(here, capsys):
    """Runs a command line that must be refused and returns its error message."""

    def call(*words):
        before = contents(here)
        capsys.readouterr()
        code = main([str(word) for word in words])
        printed = capsys.readouterr()
        assert_sentence(code, printed.out, printed.err)
        assert contents(here) == before, "a file was changed"
        return printed.err.rstrip("\n")

    return call


def assert_sentence(code, out, err):
    assert code == 3
    assert out == ""
    assert re.fullmatch(r"walkback[^\n]*: [^\n]+\.\n", err), f"not one sentence: {err!r}"
    assert "Traceback" not in err


class Stop(ProgressListener):
    """Interrupts training after `steps` steps."""

    def __init__(self, steps):
        self.left = steps

    def stepped(self, steps):
        self.left -= steps
        if self.left <= 0:
            raise KeyboardInterrupt


@pytest.fixture
def unfinished(here):
    """A run with a checkpoint of its first epoch, and the command line that resumes it."""
    sizes = {"data": SIZES[1], "arch": SIZES[3], "epochs": 2, "batch": 32}
    with pytest.raises(KeyboardInterrupt):
        walkback.train("dfa", **sizes, checkpoint_seconds=0, listener=Stop(9))
    (path,) = store.find_runs(here / "runs")
    assert set(store.open_run(path).checkpoint_epochs()) == {0, 1}
    return path, ["train", "--method", "dfa", *TINY, "--resume"]


TRAIN = [
    # unknown names
    (["--method", "dff"], r"Unknown method 'dff'\. Did you mean 'dfa'\? Known: bp, brsf, "),
    (["--method", "bp", "zzz"], r"Unknown method 'zzz'\. Known: "),
    (["--arch", "resmpl"], r"Unknown architecture 'resmpl'\. Did you mean 'resmlp'\? Known: "),
    (["--data", "cifar1O"], r"Unknown data set 'cifar1O'\. Did you mean 'cifar10'\? Known: "),
    (["--method", "dfa:scael=raw"], r"Unknown setting of the method 'dfa' 'scael'\. Did you mean 'scale'\?"),
    (["--arch", "resmlp:width=3"], r"Unknown setting of the architecture 'resmlp' 'width'\. .*Known: d, depth"),
    (["--arch", "resmlp:classes=3"], r"Unknown setting of the architecture 'resmlp' 'classes'"),
    (["--data", "prototypes:nosie=1"], r"Unknown setting of the data set 'prototypes' 'nosie'\. Did you mean 'noise'"),
    (["--set", "btach=3"], r"Unknown setting of the run 'btach'\. Did you mean 'batch'\?"),
    (["--set", "arch.width=3"], r"Unknown setting of the architecture 'resmlp' 'width'"),
    (["--set", "net.d=3"], r"--set net\.d=3: expected arch\.KEY or data\.KEY, not net\.KEY\."),
    (["--set", "method.scale=raw"], r"--set method\.scale=raw: .*dfa:scale=unit_error\."),
    (["--set", "epochs=3"], r"--set epochs=3: use the option --epochs "),
    (["--set", "seed=3"], r"--set seed=3: use the option --seeds "),
    (["--device", "tpu"], r"argument --device: invalid choice: 'tpu'"),
    (["--driver", "both"], r"argument --driver: invalid choice: 'both'"),
    (["--sedes", "1"], r"unrecognized arguments: --sedes 1"),
    (["--epoch", "1"], r"unrecognized arguments: --epoch 1"),
    # values of the wrong type
    (["--epochs", "many"], r"argument --epochs: invalid int value: 'many'"),
    (["--epochs", "1.5"], r"argument --epochs: invalid int value: '1\.5'"),
    (["--seeds", "1", "x"], r"argument --seeds: invalid int value: 'x'"),
    (["--max-seconds", "soon"], r"argument --max-seconds: invalid float value: 'soon'"),
    (["--set", "batch=3.5"], r"batch of the run is '3\.5'; expected a whole number\."),
    (["--set", "lr=fast"], r"lr of the run is 'fast'; expected a finite number\."),
    (["--set", "lr=nan"], r"lr of the run is 'nan'; expected a finite number\."),
    (["--set", "dtype=float16"], r"Unknown dtype of the run 'float16'\. Did you mean 'float\d\d'\?"),
    (
        ["--precision", "bf16"],
        r"argument --precision: invalid choice: 'bf16' \(choose from '?fp32'?, '?fp64'?, '?tf32'?\)",
    ),
    (["--set", "augment=flip"], r"Unknown augment of the run 'flip'\."),
    (["--arch", "resmlp:d=wide"], r"d of the architecture 'resmlp' is 'wide'; expected a whole number\."),
    (["--arch", "resmlp:terminal_norm=perhaps"], r"terminal_norm .* is 'perhaps'; expected true or false\."),
    (["--method", "dfa:scale=unit"], r"Unknown scale of the method 'dfa' 'unit'\. .*Known: raw, unit_error\."),
    (["--method", "dfa:penalty=inf"], r"penalty of the method 'dfa' is 'inf'; expected a finite number\."),
    # impossible sizes
    (["--epochs", "0"], r"epochs is 0; expected at least 1\."),
    (["--epochs", "-2"], r"epochs is -2; expected at least 1\."),
    (["--set", "batch=-1"], r"batch is -1; expected at least 1\."),
    (["--arch", "resmlp:d=-8"], r"d of resmlp is -8; expected at least 1\."),
    (["--arch", "resmlp:depth=0"], r"depth is 0; expected at least 1\."),
    (["--arch", "resmlp:w2_std=0"], r"w2_std of resmlp is 0\.0; expected more than 0\."),
    (["--seeds", "-1"], r"seed is -1; expected at least 0\."),
    (["--set", "lr=-0.1"], r"lr is -0\.1; expected more than 0\."),
    (["--set", "lr=0"], r"lr is 0\.0; expected more than 0\."),
    (["--set", "weight_decay=-1"], r"weight_decay is -1\.0; expected at least 0\."),
    (["--method", "fa:penalty=-0.1"], r"penalty is -0\.1; expected at least 0\."),
    (["--data", "prototypes:train=-5"], r"train of prototypes is -5; expected at least 1\."),
    (["--data", "prototypes:labels=10,prototypes=5"], r"prototypes is 5; expected at least one per class \(10\)\."),
    (["--max-seconds", "-1"], r"--max-seconds is -1\.0; expected more than 0\."),
    (["--max-seconds", "0"], r"--max-seconds is 0\.0; expected more than 0\."),
    (["--max-seconds", "nan"], r"--max-seconds is nan; expected more than 0\."),
    (["--set", "batch=257"], r"batch is 257, but 'prototypes' has only 256 training samples\. Use a smaller batch\."),
    # empty values
    (["--method", ""], r"Cannot read '': the name before ':' is missing\."),
    (["--arch", ""], r"Cannot read '': the name before ':' is missing\."),
    (["--data", ":train=5"], r"Cannot read ':train=5': the name before ':' is missing\."),
    (["--method"], r"argument --methods/--method: expected at least one argument"),
    (["--seeds", ""], r"argument --seeds: invalid int value: ''"),
    (["--set", ""], r"Cannot read '' in --set\. Write --set key=value"),
    (["--set", "batch="], r"Cannot read 'batch=' in --set\. Write --set key=value"),
    (["--method", "dfa:scale="], r"Cannot read 'scale=' in 'dfa:scale='\. Write name:key=value"),
    # duplicates and conflicts
    (["--method", "dfa", "bp", "dfa"], r"The method 'dfa' with seed 42 is asked for twice\. Ask once\."),
    (["--method", "dfa", "dfa:scale=raw"], r"The method 'dfa' with seed 42 is asked for twice\. Ask once\."),
    (["--seeds", "7", "7"], r"The method 'bp' with seed 7 is asked for twice\. Ask once\."),
    (["--set", "lr=1", "lr=2"], r"'lr' is given twice in --set\. Give it once\."),
    (["--set", "arch.d=4"], r"'d' is given twice: in --arch resmlp:d=8,depth=2 and as --set arch\.d\. Give it once\."),
    (
        ["--precision", "tf32", "--set", "dtype=float64"],
        r"--precision tf32 is dtype=tf32, but --set has dtype=float64\.",
    ),
    (["--method", "dfa:shell=bp"], r"Write 'bp:shell=bp' for it, or 'dfa:shell=method'"),
    (["--method", "kp:site=input"], r"defined for site=output only, not site=input\. Leave site out\."),
    (["--set", "augment=crop_flip"], r"augment=crop_flip needs images.* Use augment=none\."),
    # unusable paths
    (["--data", "cifar10", "--data-root", "nowhere"], r"cifar10 was not found\. .*`walkback data get cifar10`"),
    (["--data", "cifar10", "--data-root", "mine.txt"], r"cifar10 was not found"),
    (["--out", "mine.txt"], r"Could not create mine\.txt: File exists\. Something of that name is in the way"),
    (["--out", "mine.txt/below"], r"Could not create .*A part of that path is a file, not a folder"),
    (["--out", "/proc/walkback"], r"Could not create /proc/walkback"),
    (["--out", "x" * 300], r"Could not (open|create) .*The name is too long for this file system\."),
]


@pytest.mark.parametrize(("words", "sentence"), TRAIN, ids=[" ".join(words)[:60] for words, _ in TRAIN])
def test_train_refuses(refused, words, sentence):
    given = TINY[:-2] if any(word.startswith("batch=") for word in words) else TINY
    assert re.search(sentence, refused("train", *given, *words))


def test_options_are_suggested_for_misspelled_options_only(refused):
    message = refused("train", "--epochs", "many")
    assert "invalid int value: 'many'" in message
    assert "Did you mean" not in message
    assert "Did you mean --epochs?" in refused("train", "--epochz", "3")


@pytest.mark.parametrize("word", ["--methods/--method", "--arch", "--data", "--epochs", "--out", "--device"])
def test_an_option_without_its_value_is_refused(refused, word):
    assert f"argument {word}: expected" in refused("train", word.partition("/")[0])


@pytest.mark.parametrize(("words", "sentence"), TRAIN[:10] + TRAIN[-20:-10], ids=lambda value: str(value)[:60])
def test_a_dry_run_refuses_the_same(refused, words, sentence):
    assert re.search(sentence, refused("train", *TINY, *words, "--dry-run"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_refused(refused):
    message = refused("train", *TINY, "--device", "cuda")
    assert re.search(r"cuda.*no CUDA GPU.*--device cpu", message)
    assert refused("train", *TINY, "--device", "cuda", "--dry-run") == message


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["trian"], r"Unknown command 'trian'\. Did you mean 'train'\?"),
        (["ls", "method"], r"Unknown catalog 'method'\. Did you mean 'methods'\?"),
        (["ls", "runs", "nowhere"], r"There is no folder nowhere\."),
        (["ls", "methods", "dff"], r"Unknown method 'dff'\. Did you mean 'dfa'\?"),
        (["show", "nowhere"], r"There is no file or folder nowhere\."),
        (["completion", "tcsh"], r"argument shell: invalid choice: 'tcsh'"),
        (["explain", "concentraton"], r"Unknown term 'concentraton'\. Did you mean 'concentration'\?"),
        (["data"], r"walkback data: the following arguments are required"),
        (["data", "verify", "cifar10"], r"cifar10 was not found"),
        (["data", "get", "cifar1O"], r"Unknown data set 'cifar1O'\. Did you mean 'cifar10'\?"),
        (
            ["demo", "--out", "mine.txt"],
            r"Could not create mine\.txt: File exists\. Something of that name is in the way",
        ),
        (["doctor", "--fix"], r"walkback doctor: unrecognized arguments: --fix"),
    ],
)
def test_other_commands_refuse(refused, words, sentence, monkeypatch):
    # A smaller task than the demo's makes this fast.
    monkeypatch.setattr("walkback.cli.commands.demo.DATA", "prototypes:train=256,test=64")
    assert re.search(sentence, refused(*words))


class TestData:
    NAMES = ("train_pixels", "train_labels", "test_pixels", "test_labels")

    @pytest.fixture
    def folder(self, here):
        """A folder in the format of a stored cifar10, with arrays of the wrong size."""
        folder = here / "data" / "cifar10"
        folder.mkdir(parents=True)
        (folder / SOURCE_FILE).write_text("{}")
        for name in self.NAMES:
            np.save(folder / f"{name}.npy", np.zeros(3, np.uint8))
        return folder

    words = ("train", "--data", "cifar10", "--epochs", "1")

    def test_arrays_of_another_size_are_refused(self, refused, folder):
        assert re.search(r"train_pixels.* has shape \(3,\).*expected \(50000, 32, 32, 3\)", refused(*self.words))

    @pytest.mark.parametrize("content", [b"", b"rubbish", b"\x93NUMPY\x01\x00"])
    def test_damaged_arrays_are_refused(self, refused, folder, content):
        (folder / "train_pixels.npy").write_bytes(content)
        assert "train_pixels" in refused(*self.words)

    def test_missing_arrays_are_refused(self, refused, folder):
        (folder / "test_labels.npy").unlink()
        assert "lacks test_labels.npy" in refused(*self.words)


class TestExisting:
    def test_an_existing_run_is_refused_without_resume(self, refused, unfinished):
        path, words = unfinished
        message = refused(*words[:-1])
        assert all(part in message for part in (f"runs/{path.name}", "--resume", "--out"))

    def test_no_new_run_is_started_beside_a_refused_one(self, refused, unfinished):
        _path, words = unfinished
        assert "exists already" in refused(*words[:-1], "--method", "bp", "dfa")

    @pytest.mark.parametrize(
        ("name", "content", "sentence"),
        [
            ("run.json", b"", r"run\.json cannot be read"),
            ("run.json", b"{}", r"run\.json is not a run's record"),
            ("run.json", None, r"run\.json is missing"),
            ("resume.safetensors", b"", r"resume\.safetensors cannot be read"),
            ("resume.safetensors", bytes(200), r"resume\.safetensors cannot be read"),
            ("train.jsonl", b"", r"train\.jsonl has 0 bytes where its checkpoint says"),
            ("train.jsonl", None, r"train\.jsonl has 0 bytes where its checkpoint says"),
        ],
    )
    @pytest.mark.parametrize("others", [[], ["--method", "bp", "dfa"]], ids=["alone", "among-others"])
    def test_a_damaged_run_is_not_resumed(self, refused, unfinished, name, content, sentence, others):
        path, words = unfinished
        if content is None:
            (path / name).unlink()
        else:
            (path / name).write_bytes(content)
        message = refused(*words, *others)
        assert re.search(rf"runs/{re.escape(path.name)} is damaged: {sentence}", message)
        assert "Nothing was changed. Move that folder away" in message

    def test_a_truncated_checkpoint_is_not_resumed(self, refused, unfinished):
        path, words = unfinished
        os.truncate(path / "resume.safetensors", (path / "resume.safetensors").stat().st_size - 1)
        assert re.search(r"resume\.safetensors has [\d,]+ bytes; its header says", refused(*words))

    def test_another_format_is_refused(self, refused, unfinished):
        path, words = unfinished
        record = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(record | {"format": 2}))
        assert re.search(r"format 2.*reads format 1", refused(*words))

    def test_a_damaged_run_is_listed_with_its_reason_among_the_others(self, unfinished, capsys):
        path, _words = unfinished
        (path / "run.json").write_text("{")
        capsys.readouterr()
        assert main(["ls", "runs", "--json"]) == 0
        (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert row["run"] == path.name
        assert row["status"] == "damaged"
        assert "run.json cannot be read" in row["reason"]

    def test_another_configuration_under_the_same_name_is_refused(self, refused, unfinished):
        path, words = unfinished
        record = json.loads((path / "run.json").read_text())
        (path / "run.json").write_text(json.dumps(record | {"digest": "0" * 64}))
        assert "is damaged" in refused(*words)

    def test_a_finished_run_without_its_model_is_not_skipped(self, refused, unfinished, capsys):
        path, words = unfinished
        assert main([*words, "--quiet"]) == 0
        (path / "model.safetensors").unlink()
        assert "model.safetensors is missing" in refused(*words)

    def test_a_file_in_place_of_a_run_folder_is_refused(self, refused, unfinished):
        path, words = unfinished
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
        path.write_text("a file")
        assert "exists already" in refused(*words[:-1])
        assert "There is no run at" in refused(*words)

    def test_a_run_locked_by_another_process_is_refused_until_it_is_unlocked(self, refused, unfinished, capsys):
        path, words = unfinished
        other = store.open_run(path)
        other.lock()
        try:
            assert "Another process is training" in refused(*words, "--quiet")
        finally:
            other.unlock()
        assert main([*words, "--quiet"]) == 0


class TestFullDisk:
    @pytest.fixture
    def fill(self, monkeypatch):
        """From the n-th fsync on, the disk is full."""

        def make(operation):
            left = [operation]

            def fsync(_descriptor):
                left[0] -= 1
                if left[0] < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            monkeypatch.setattr(os, "fsync", fsync)

        return make

    def test_no_space_for_a_new_run_leaves_nothing(self, refused, fill):
        fill(0)
        assert "No space left on device" in refused("train", *TINY, "--out", ".", "--quiet")

    @pytest.mark.parametrize(
        "operation", [pytest.param(n, marks=() if n == 7 else pytest.mark.slow) for n in range(1, 16, 2)]
    )
    def test_a_disk_that_fills_up_in_training_leaves_runs_that_resume_to_the_same_bits(
        self, here, capsys, fill, operation, monkeypatch
    ):
        words = ["train", "--method", "dfa", "fa", "--seeds", "1", "2", *TINY, "--quiet", "--out"]
        assert main([*words, "through"]) == 0
        capsys.readouterr()
        fill(operation)
        code = main([*words, "filled"])
        monkeypatch.undo()
        printed = capsys.readouterr()
        assert_sentence(code, printed.out, printed.err)
        assert "The disk is full" in printed.err
        monkeypatch.chdir(here)
        assert main([*words, "filled", "--resume"]) == 0
        for path in (here / "through").iterdir():
            for name in ("model.safetensors", "rule.safetensors", "train.jsonl"):
                assert (path / name).read_bytes() == (here / "filled" / path.name / name).read_bytes()

    def test_a_full_disk_while_logging_gives_one_sentence(self, here, capsys, monkeypatch):
        real = store.open_to_change

        def full(path):
            return Path("/dev/full").open("r+b", buffering=64) if path.name == "train.jsonl" else real(path)

        monkeypatch.setattr(store, "open_to_change", full)
        code = main(["train", *TINY, "--quiet"])
        printed = capsys.readouterr()
        assert_sentence(code, printed.out, printed.err)
        assert "train.jsonl: No space left on device" in printed.err


class TestProcesses:
    """Some of these as real processes, to check that nothing is printed besides the sentence."""

    @pytest.mark.parametrize(
        "words",
        [
            ["train", "--method", "dff"],
            ["train", "--epochs", "x"],
            pytest.param(["train", *TINY, "--out", "mine.txt/below"], marks=pytest.mark.slow),
        ],
    )
    def test_one_sentence_and_nothing_else(self, here, words):
        before = contents(here)
        line = [sys.executable, "-m", "walkback", *words]
        done = subprocess.run(line, cwd=here, capture_output=True, text=True, check=False)
        assert_sentence(done.returncode, done.stdout, done.stderr)
        assert contents(here) == before
