"""Every reproducer of the trust campaign: hostile and damaged files end in one sentence and exit code 3, and nothing is
changed; nothing outside a run's folder is written; other limits than damage are named as such.

`test_damage.py` has every stored file × kind of damage, `test_stored_plan.py` plans on a loaded machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import lying_models
import numpy as np
import pytest
import safetensors.numpy
import torch

import walkback as wb
from dying import contents, in_child
from walkback.auditing.audit_files import read_overview
from walkback.cli.main import main
from walkback.core.content_hash import SHA256
from walkback.core.errors import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_NO_READER, InputError
from walkback.core.files import leftovers, open_to_change, temporary_path, write_atomic
from walkback.core.measurements import Measurements
from walkback.core.reading import json_text
from walkback.runs import store
from walkback.runs.store import LOCK, LOG, MODEL, RECORD, RESUME
from walkback.watching.follow import MAX_KEPT, Follower
from walkback.watching.journal import WATCH_LOG, WATCH_RECORD, Journal
from walkback_papers.publish import _published_text
from walkback_papers.timings import TIMINGS, timings

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0.8.1"
NAME = "bp_resmlp_prototypes_s1_e6fba4a8"
DEEP = "[" * 100_000 + "]" * 100_000
BIG = "1" + "0" * 320
HOSTILE = {
    "deep": DEEP,
    "number": f'{{"format": 1, "seed": {BIG}}}',
    "infinite": '{"format": 1, "seed": 1e999}',
    "NaN": '{"format": NaN}',
    "twice": '{"format": 1, "format": 1}',
    "half a character": '{"format": 1, "run": "\\ud800"}',
    "cut off": '{"format": 1, "na',
    "list": "[1]",
    "not text": b"\xff\xfe",
}
each_hostile = pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(here):
    """A finished run of 0.8.1, whose record and log have no hashes."""
    return Path(shutil.copytree(FIXTURES / "audit", here / "audit")) / NAME


@pytest.fixture
def refused(here, capsys):
    """Runs a command that must be refused with one sentence, and must change nothing; returns the sentence."""

    def call(*words, code=EXIT_INPUT):
        before = links_and_contents(here)
        capsys.readouterr()
        assert main([str(word) for word in words]) == code
        printed = capsys.readouterr()
        assert (printed.out, printed.err.count("\n")) == ("", 1), printed.err
        assert printed.err.startswith("walkback")
        assert links_and_contents(here) == before
        return printed.err

    return call


def links_and_contents(folder):
    """Every file below a folder with its hash, links and special files by what they are; none of them is opened."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = f"to {os.readlink(path)}"
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            found[str(path)] = path.lstat().st_mode
    return found


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def change_record(run, **changes):
    record = json.loads((run / RECORD).read_text()) | changes
    (run / RECORD).write_text(json.dumps(record))


def watched(here, record='{"format": 1, "status": "done", "thresholds": {}}', *rows):
    put(here / "w" / WATCH_RECORD, record)
    put(here / "w" / WATCH_LOG, "".join(f"{row}\n" for row in rows))
    return here / "w"


def memory_of(work):
    """MiB that the work takes in a process of its own."""

    def measured():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        os._exit(min(grown // (16 * 1024), 100))

    return 16 * in_child(measured)


class TestJson:
    """Every place that reads JSON."""

    @each_hostile
    def test_a_record(self, run, content, refused):
        put(run / RECORD, content)
        assert RECORD in refused("watch", run, "--once")

    @each_hostile
    def test_a_card(self, run, content, refused):
        put(run / "report.json", content)
        assert "report.json" in refused("render", run)

    @each_hostile
    def test_a_log(self, run, content, refused):
        put(run / LOG, (content if isinstance(content, bytes) else content.encode()) + b"\n")
        assert LOG in refused("watch", run, "--once")

    @each_hostile
    def test_a_journal(self, here, content, refused):
        put(watched(here) / WATCH_LOG, (content if isinstance(content, bytes) else content.encode()) + b"\n")
        assert WATCH_LOG in refused("watch", here / "w", "--once")

    @each_hostile
    def test_the_record_of_a_journal(self, here, content, refused):
        put(watched(here) / WATCH_RECORD, content)
        assert WATCH_RECORD in refused("watch", here / "w", "--once")

    @each_hostile
    def test_a_study(self, here, content, refused):
        put(here / "results" / "primary-audit" / "study.json", content)
        put(here / "page.md", "x <!-- quote primary-audit#1 --><!-- /quote -->")
        assert "study.json" in refused("quote", here / "page.md", "--results", here / "results")

    @each_hostile
    def test_an_overview(self, here, content):
        put(here / "audit.json", content)
        with pytest.raises(InputError, match=r"audit\.json"):
            read_overview(here)

    @each_hostile
    def test_a_log_and_a_record_that_are_published(self, run, content):
        for name in (LOG, RECORD):
            put(run / name, content)
            with pytest.raises(InputError, match=name):
                _published_text(run / name)

    @pytest.mark.parametrize("content", ["7", "[7]", "[{}", DEEP])
    def test_timings_that_are_none_are_not_overwritten(self, here, content):
        put(here / TIMINGS, content)
        with pytest.raises(InputError, match=TIMINGS):
            timings(here)

    @each_hostile
    def test_a_notebook(self, here, content, capsys):
        put(here / "n.ipynb", content)
        assert main(["lint", str(here / "n.ipynb")]) == 2
        assert "not checked" in capsys.readouterr().out

    def test_limits_on_size_and_elements(self, here, monkeypatch):
        put(here / "big.json", "[1,1,1,1]")
        monkeypatch.setattr(json_text, "MAX_ELEMENTS", 2)
        with pytest.raises(InputError, match="more than 2 entries"):
            json_text.read_json(here / "big.json", InputError)
        with pytest.raises(InputError, match="has 9 bytes; expected at most 8"):
            json_text.read_json(here / "big.json", InputError, limit=8)

    def test_brackets_in_texts_are_no_depth(self):
        assert json_text.parse_json(json.dumps(["[{" * 500, '"' * 40]), InputError) == ["[{" * 500, '"' * 40]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config", {"method": 3}),
        ("timings", {}),
        ("timings", {"seconds": "x"}),
        ("result", {}),
        ("result", {"test_acc": 7, "epochs": 1}),
        ("files", {MODEL: 3}),
        ("data", {}),
        ("seed", 10**39),
        ("method", "another"),
        ("device", 3),
        ("config", {}),
    ],
)
def test_a_record_of_other_types_is_refused(run, key, value, refused):
    change_record(run, **{key: value})
    refused("diagnose", run, "--device", "cpu")


@pytest.mark.parametrize(
    "record",
    [
        '{"format": 1}',
        '{"format": 1, "status": "done"}',
        '{"format": 1, "status": 5, "thresholds": {}}',
        '{"format": 1, "status": "done", "thresholds": 3}',
        '{"format": 1, "status": "done", "thresholds": {"unknown": 1}}',
        '{"format": 1, "status": "running", "thresholds": {}, "pid": -1}',
    ],
)
def test_the_record_of_a_journal_is_checked(here, record, refused):
    refused("watch", watched(here, record), "--once")


@pytest.mark.parametrize(
    "row",
    [
        '{"step": "a"}',
        '{"step": 1, "growth": "x", "grad_top": 1}',
        '{"step": 1, "growth": 1}',
        '{"step": 1, "growth": [1], "grad_top": 1}',
        '{"step": 1, "hidden": [[1]]}',
        '{"step": 1, "flags": []}',
        "3",
    ],
)
def test_the_rows_of_a_journal_are_checked(here, row, refused):
    refused("watch", watched(here, '{"format": 1, "status": "done", "thresholds": {}}', row), "--once")


def test_the_largest_numbers_are_drawn(here):
    record = '{"format": 1, "status": "done", "thresholds": {}}'
    rows = ['{"step": 1, "loss": 1e308}', '{"step": 2, "loss": -1e308}', '{"step": 3, "hidden": [null]}']
    assert main(["watch", str(watched(here, record, *rows)), "--once"]) == 0


def safetensors_bytes(header, body):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (safetensors_bytes({"w": {**ENTRY, "dtype": "BF16", "shape": [4]}}, bytes(8)), "type BF16"),
        (safetensors_bytes({"w": {**ENTRY, "dtype": "F8_E4M3", "shape": [8]}}, bytes(8)), "type F8_E4M3"),
        (safetensors_bytes({"w": {**ENTRY, "dtype": "F3"}}, bytes(8)), "'F3'"),
        (safetensors_bytes({"w": ENTRY, "v": {**ENTRY, "data_offsets": [4, 12]}}, bytes(12)), "do not fit"),
        (safetensors_bytes({"w": {**ENTRY, "shape": [2**40, 2**40]}}, bytes(8)), "do not fit"),
        (safetensors_bytes({"w": {**ENTRY, "shape": [-2]}}, bytes(8)), "-2"),
        (safetensors_bytes({"w": {**ENTRY, "data_offsets": [0, 2**50]}}, bytes(8)), "do not fit"),
        (safetensors_bytes({"w": ENTRY}, bytes(9)), "17|bytes; its header says"),
        (safetensors_bytes(DEEP.encode(), b""), "nested more than 64"),
        (struct.pack("<Q", 2**60) + b"{}", "cut off"),
        (b"", "cut off"),
    ],
)
def test_weights_of_other_types_and_shapes_are_refused(run, content, words, refused):
    """Even where the record has the hash of them."""
    put(run / MODEL, content)
    change_record(run, files={MODEL: hashlib.sha256(content).hexdigest()})
    with pytest.raises(InputError, match=words):
        store.open_run(run).params()
    refused("diagnose", run, "--device", "cpu")


@pytest.mark.parametrize(
    "facts", [{"seconds": "nan"}, {"epoch": "-1"}, {"epoch": "99"}, {"fleet": "[[1]]"}, {"fleet": DEEP}]
)
def test_the_facts_of_a_checkpoint_are_checked(here, facts, refused):
    out = Path(shutil.copytree(FIXTURES / "unfinished", here / "out"))
    path = next(out.glob("drtp_*")) / RESUME
    with safetensors.safe_open(path, "np") as opened:
        known = opened.metadata()
    path.write_bytes(safetensors.numpy.save(safetensors.numpy.load_file(path), metadata=known | facts))
    sizes = ["--arch", "resmlp:d=8,depth=2", "--data", "prototypes:train=256,test=1024,dim=24"]
    words = ["--set", "batch=64", "lr=0.01", "--seeds", "1", "--epochs", "3", "--device", "cpu", "--quiet"]
    # A run of 0.8.1 is resumed with a warning, which is a second line.
    assert path.parent.name in refused("train", "--method", "drtp", *sizes, *words, "--resume", "--out", out)


class TestArrays:
    def save(self, run, arrays, facts):
        buffer = io.BytesIO()
        text = json.dumps({name: value for name, value in facts.items() if name != SHA256}).encode()
        np.savez_compressed(buffer, **arrays, facts=np.frombuffer(text, np.uint8))
        put(run / "measurements.npz", buffer.getvalue())
        return run / "measurements.npz"

    def stored(self, run):
        with np.load(run / "measurements.npz") as found:
            arrays = dict(found)
        return arrays, json.loads(arrays.pop("facts").tobytes())

    @pytest.mark.parametrize(
        "change",
        [
            {"layers": "x"},
            {"layers": 10**30},
            {"labels": 3},
            {"samples": [1]},
            {"pool": {}},
            {"found": [3]},
            {"leaves": []},
        ],
        ids=str,
    )
    def test_facts_of_other_types_are_refused(self, run, change):
        arrays, facts = self.stored(run)
        path = self.save(run, arrays, facts | change)
        with pytest.raises(InputError, match=r"at the key|its facts have"):
            Measurements.load(path)

    @pytest.mark.parametrize(
        "header",
        [
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': '<f64', 'fortran_order': False, 'shape': (1,), }",
            "{'descr': __import__('os').system('touch ran'), 'fortran_order': False, 'shape': (1,), }",
            "[" * 9000,
        ],
    )
    def test_headers_of_arrays_are_matched_and_not_run(self, here, header):
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
        with zipfile.ZipFile(here / "m.npz", "w") as archive:
            archive.writestr("loss.npy", data)
        with pytest.raises(InputError, match="an array 'loss' that"):
            Measurements.load(here / "m.npz")
        assert not (here / "ran").exists()

    def test_a_bomb_is_not_unpacked(self, here):
        with (
            zipfile.ZipFile(here / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("loss.npy", "w") as file,
        ):
            for _ in range(60):
                file.write(bytes(10_000_000))

        def load():
            with pytest.raises(InputError, match="unpacks to 600,000,000 bytes"):
                Measurements.load(here / "m.npz")

        assert (here / "m.npz").stat().st_size < 2**20
        assert memory_of(load) < 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("methods: [bp]\nseeds: 2020-13-45", "month"),
        ("methods: [bp]\nbaselines: !!bool maybe", "maybe"),
        ("methods: " + "[" * 5000 + "]" * 5000, "nested more than 20"),
        ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]", r"alias '\*a'"),
        ("methods: !!python/object/apply:os.system [touch ran]", "os.system"),
        (f"methods: [bp]\nseeds: {BIG}", "at most"),
        (f"methods: [bp]\nseeds: {'1' * 5000}", "4300"),
        (f"methods: [bp]\nsettings: {{lr: {BIG}}}", "finite"),
        ("methods: [bp]\nsettings: {lr: .inf}", "finite"),
        (f"methods: [bp]\nseeds: {list(range(3000))}\nsettings: {{batch: {list(range(1, 9001))}}}", "27,000,000"),
        ("# " + "x" * 2**20, "expected at most 1,048,576"),
    ],
)
def test_grids_that_grow_or_cannot_be_read_are_refused(here, text, words, refused):
    put(here / "grid.yaml", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("walkback.sweeping.sweep.run_sweep", lambda *_: pytest.fail("it was not refused"))
        printed = refused("sweep", here / "grid.yaml", "--out", here / "out")
    assert re.search(words, printed), printed
    assert not (here / "ran").exists()


class TestSpecialFiles:
    """A fifo would block, /dev/zero has no end, and a link may lead anywhere."""

    def replace(self, path, kind):
        data = path.read_bytes()
        path.unlink()
        if kind == "zero":
            path.symlink_to("/dev/zero")
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            put(path.parents[2] / "elsewhere", data)
            path.symlink_to(path.parents[2] / "elsewhere")

    @pytest.mark.parametrize("kind", ["zero", "fifo", "folder", "link"])
    @pytest.mark.parametrize("name", [RECORD, MODEL, LOG])
    def test_in_a_run(self, run, name, kind, refused):
        self.replace(run / name, kind)
        refused("diagnose", run, "--device", "cpu")

    @pytest.mark.parametrize("kind", ["zero", "fifo", "folder"])
    def test_as_a_card(self, run, kind, refused):
        self.replace(run / "report.json", kind)
        refused("render", run)
        refused("render", run / "report.json")

    @pytest.mark.parametrize("kind", ["zero", "fifo", "link"])
    def test_as_measurements_and_journal(self, here, run, kind):
        self.replace(run / "measurements.npz", kind)
        with pytest.raises(InputError, match=r"measurements\.npz .* is a (link|fifo)"):
            Measurements.load(run / "measurements.npz")
        folder = watched(here / "deep" / "er")
        self.replace(folder / WATCH_LOG, kind)
        with pytest.raises(InputError, match=f"{WATCH_LOG} is a (link|fifo)"):
            Follower(folder).state()

    def test_named_by_the_user(self, here, refused):
        os.mkfifo(here / "fifo")
        for name in ("fifo", "/dev/zero"):
            assert "expected a regular file" in refused("sweep", name)
        (here / "socket").touch()
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("s")
            assert "special file" in refused("sweep", "s")

    def test_a_grid_may_be_a_link(self, here):
        put(here / "real.yaml", "methods: none_such")
        (here / "grid.yaml").symlink_to("real.yaml")
        assert main(["sweep", "grid.yaml"]) == EXIT_INPUT


def unfinished(here):
    """A run that has begun."""
    plain = {"method": "dfa", "seed": 1, "config": {"epochs": 2}, "digest": "d", "rule_has_state": False}
    record = {"run": "a", **plain, "data": {"digest": "e"}, "versions": {}}
    made = store.create_run(here / "out" / "a", record)
    made.append_log({"epoch": 1})
    arrays = {"params/w": np.ones(3, np.float32)}
    made.save_checkpoint(store.Checkpoint(1, made.log_length(), ("a",), 0.5, arrays))
    return made


def test_h1_a_flipped_bit_of_a_checkpoint_is_refused(here):
    made = unfinished(here)
    path = made.path / RESUME
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"its sha256 differs"):
        store.open_run(made.path).checkpoint(1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_h2_a_model_without_finite_logits_is_not_trustworthy(value):
    class Broken(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = lying_models.make("mlp", None)
            self.blocks = self.inner.blocks

        def forward(self, x):
            return self.inner(x) * value

    verdicts = {wb.diagnose(Broken(), [lying_models.batch("mlp")], headline_acc=0.9, frozen_baseline_acc=0.3).verdict}
    assert "trustworthy" not in verdicts


def test_h3_a_plan_does_not_depend_on_timings(monkeypatch):
    from test_stored_plan import BP, load_machine

    from walkback.core.configuration import grid
    from walkback.training.planning.load_balance import split_long_fleets
    from walkback.training.planning.plan_fleets import plan_fleets
    from walkback.training.resolved_run import resolve

    plans = []
    settings = {name: value for name, value in BP.items() if name not in ("methods", "device")}
    runs = [resolve(config) for config in grid("bp", seeds=[1, 2, 3, 4], **settings)]
    for number in range(3):
        load_machine(monkeypatch, number)
        groups = plan_fleets(runs, [()] * 4, "fleet", torch.device("cpu"), 10**9)
        plans.append([[each.name for each in group.resolved_runs] for group in split_long_fleets(groups, 2)])
    assert plans[0] == plans[1] == plans[2]


class TestM1NothingIsWrittenElsewhere:
    """test_m1: links in a run's folder, in a journal's, and in the way of a new file."""

    @pytest.mark.parametrize("name", [LOG, LOCK, "epochs"])
    @pytest.mark.parametrize("exists", [True, False])
    def test_m1_a_link_in_a_run_is_refused(self, here, name, exists):
        made = unfinished(here)
        victim = here / "victim"
        if exists:
            victim.write_text("mine")
        (made.path / name).unlink(missing_ok=True)
        (made.path / name).symlink_to(victim)
        before = links_and_contents(here)
        with pytest.raises(InputError, match=f"{name} is a link"):
            store.open_run(made.path)
        assert links_and_contents(here) == before

    def test_m1_a_log_replaced_while_it_is_written_is_not_followed(self, here):
        made = unfinished(here)
        victim = here / "victim"
        victim.write_text("mine")
        for replace in (Path.symlink_to, Path.hardlink_to):
            (made.path / LOG).unlink()
            replace(made.path / LOG, victim)
            for write in (lambda: made.append_log({"epoch": 2}), lambda: made.truncate_log(0)):
                with pytest.raises(InputError, match=r"Nothing was changed\."):
                    write()
        assert victim.read_text() == "mine"

    @pytest.mark.parametrize("name", [RECORD, MODEL, RESUME, "report.json", WATCH_RECORD])
    def test_m1_what_is_replaced_replaces_a_link_and_not_its_target(self, here, name):
        victim = here / "victim"
        victim.write_text("mine")
        (here / name).symlink_to(victim)
        temporary_path(here / name).symlink_to(victim)
        write_atomic(here / name, b"new")
        assert victim.read_text() == "mine"
        assert (here / name).read_bytes() == b"new"
        assert not (here / name).is_symlink()

    def test_m1_a_journal_is_not_written_elsewhere(self, here):
        journal = Journal(here / "w", resume=False)
        journal.start({"sample_hash": "x"}, 0)
        (here / "victim").write_text("mine")
        (here / "w" / WATCH_LOG).unlink()
        (here / "w" / WATCH_LOG).symlink_to(here / "victim")
        with pytest.raises(InputError, match="is a link"):
            journal.append({"step": 1})
        assert (here / "victim").read_text() == "mine"

    def test_m1_a_fifo_is_not_waited_for(self, here):
        os.mkfifo(here / "log")
        with pytest.raises(InputError, match="is a fifo"):
            open_to_change(here / "log")


def test_m2_a_changed_record_is_refused_before_training_goes_on(here):
    made = unfinished(here)
    record = json.loads((made.path / RECORD).read_text())
    for change in ({"config": {"epochs": 2, "lr": 1}}, {"data": {"digest": "f"}}):
        (made.path / RECORD).write_text(json.dumps(record | change))
        with pytest.raises(InputError, match="its sha256 differs"):
            store.open_run(made.path)


class TestM8LimitsAreNoDamage:
    """test_m8: too many open files, a full disk and missing permissions are named as what they are."""

    def test_m8_too_many_open_files(self, here):
        made = unfinished(here)

        def work():
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit[1]))
            held = []
            with suppress(OSError):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            for use in (lambda: store.open_run(made.path), made.checkpoint_epochs, made.log):
                with pytest.raises(InputError, match=r"Too many open files.*ulimit -n") as caught:
                    use()
                assert "damaged" not in str(caught.value)
            for descriptor in held:
                os.close(descriptor)

        assert in_child(work) == 0

    @pytest.mark.parametrize("name", [RECORD, LOG, RESUME])
    def test_m8_a_file_that_may_not_be_read(self, here, monkeypatch, name):
        made = unfinished(here)
        real = os.open

        def forbidden(path, *words, **named):
            if str(path).endswith(name):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, *words, **named)

        monkeypatch.setattr(os, "open", forbidden)

        def use():
            opened = store.open_run(made.path)
            return opened.log(), opened.checkpoint(1)

        with pytest.raises(InputError, match=r"Permission denied\. You may not read it") as caught:
            use()
        assert "damaged" not in str(caught.value)


def test_a_long_journal_is_followed_in_little_memory(here, monkeypatch):
    folder = watched(here)
    row = {"step": 0, "loss": 1.0, "growth": 2.0, "grad_top": 1.0, "hidden": [1.0] * 100}
    with (folder / WATCH_LOG).open("w") as file:
        for step in range(3 * MAX_KEPT):
            file.write(json.dumps({**row, "step": step}) + "\n")
    follower = Follower(folder)

    def follow():
        state = follower.state()
        assert state.looks == 3 * MAX_KEPT
        assert len(state.rows) <= MAX_KEPT
        assert [state.rows[0]["step"], state.rows[-1]["step"]] == [0, 3 * MAX_KEPT - 1]

    assert memory_of(follow) <= 16
    follow()
    with (folder / WATCH_LOG).open("a") as file:
        file.write(json.dumps({**row, "step": 10**6}) + "\n")
    read = []
    monkeypatch.setattr(
        "walkback.watching.journal.parse_json_line", lambda line, *_: read.append(line) or json.loads(line)
    )
    assert follower.state().rows[-1]["step"] == 10**6
    assert len(read) == 1, "what was read before is not read again"


class TestTerminal:
    NAME = "mine [/v2][bold]\x1b[31m\x07\u202e"

    def test_foreign_names_are_printed_as_they_are(self, run, here, capsys):
        change_record(run, method=self.NAME)
        record = json.dumps({"format": 1, "status": "done", "thresholds": {}, "method": self.NAME, "reason": self.NAME})
        folder = watched(here, record, json.dumps({"step": 1, "problem": self.NAME}))
        for words in (["ls", "runs", str(run.parent)], ["watch", str(run), "--once"], ["watch", str(folder), "--once"]):
            assert main(words) == 0
            printed = capsys.readouterr().out
            assert not set("\x1b\x07\u202e") & set(printed)
            squeezed = "".join(printed.split())
            assert "\\x1b[31m" in squeezed or words[0] == "ls"
            assert "[/v2]" in squeezed

    def test_a_path_in_an_error_is_one_line(self, refused):
        printed = refused("render", "no\x1b[2Jsuch\nfolder")
        assert "no\\x1b[2Jsuch folder" in printed

    def process(self, words, **named):
        environment = {**os.environ, **named.pop("env", {})}
        return subprocess.run(
            ["/bin/sh", "-c", words.replace("walkback", f"{sys.executable} -m walkback")],
            capture_output=True, text=True, check=False, env=environment, **named,
        )  # fmt: skip

    def test_a_reader_that_closes_the_pipe_gets_no_verdict(self):
        # `ls methods` prints with `print`, `watch` with rich.
        folder = FIXTURES / "audit" / NAME
        for command in ("ls methods", f"watch {folder} --once"):
            done = self.process(f"(sleep 1; walkback {command}; echo $? >&2) | head -c 0")
            assert done.stderr.split() == [str(EXIT_NO_READER)]

    def test_closed_and_ascii_output(self):
        folder = FIXTURES / "audit" / NAME
        done = self.process(f"walkback watch {folder} --once >&- 2>&-; echo $?")
        assert (done.stdout, done.stderr) == ("0\n", "")
        done = self.process(f"walkback watch {folder} --once", env={"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.isascii()

    def test_ctrl_c_inside_the_making_of_a_class(self, monkeypatch, capsys):
        def interrupted(given):
            raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

        monkeypatch.setattr("walkback.cli.main._dispatch", interrupted)
        assert main(["ls"]) == EXIT_INTERRUPTED
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--data", f"prototypes:train={10**12}"],
        ["--data", f"teacher:train={10**12}"],
        ["--data", f"tiles:side={10**6}", "--arch", "small_cnn"],
        ["--data", f"markov:vocabulary={10**7}", "--arch", "gpt_mini"],
        ["--data", "tiles", "--arch", f"small_cnn:width={10**7}"],
        ["--arch", f"resmlp:depth={10**8}"],
        ["--arch", f"resmlp:d={10**8}"],
        ["--epochs", "1" + "0" * 30],
        ["--seeds", BIG],
        ["--set", f"lr={BIG}"],
    ],
)
def test_absurd_sizes_are_refused_before_memory_is_taken(words, refused):
    refused("train", *words, "--out", "out")


@pytest.mark.parametrize("interval", ["1e300", "inf", "nan", "0"])
def test_absurd_intervals_are_refused(here, interval, refused):
    assert "--interval" in refused("watch", watched(here), "--interval", interval)


class TestUsersModules:
    SOURCE = """
import torch
def needs(a): return a
def none(): return None
def broken(): raise ZeroDivisionError("in here")
def three(): return 3
def net(): return torch.nn.Linear(6, 4)
def pairs():
    yield 1 / 0
"""

    @pytest.fixture(autouse=True)
    def modules(self, here, monkeypatch):
        put(here / "wb_users.py", self.SOURCE)
        put(here / "wb_no_syntax.py", "def f(:\n")
        put(here / "wb_exits.py", "import sys; sys.exit(1)\n")
        monkeypatch.syspath_prepend(here)
        yield
        for name in ("wb_users", "wb_no_syntax", "wb_exits"):
            sys.modules.pop(name, None)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("wb_no_syntax:f", "SyntaxError"),
            ("wb_exits:f", "SystemExit"),
            ("wb_users:needs", "'a'"),
            ("wb_users:none", "NoneType"),
            ("wb_users:broken", "ZeroDivisionError: in here in wb_users.py, line 5"),
            ("wb_users:three", "int"),
            ("..:x", r"'\.\.'"),
        ],
    )
    def test_are_told_with_their_place(self, text, words, refused):
        __tracebackhide__ = True
        for option, other in (("--model", ["--data", "wb_users:three"]), ("--data", ["--model", "wb_users:net"])):
            printed = refused("diagnose", option, text, *other, "--headline-acc", "0.3", "--frozen-acc", "0.3")
            assert re.search(words, printed), printed

    def test_batches_that_raise(self, refused):
        printed = refused("diagnose", "--model", "wb_users:net", "--data", "wb_users:pairs", "--headline-acc", "0.3")
        assert "ZeroDivisionError" in printed

    def test_an_evil_checkpoint_runs_nothing_and_is_given_no_advice(self, here, refused):
        class Evil:
            def __reduce__(self):
                return (os.mkdir, (str(here / "ran"),))

        torch.save({"w": Evil()}, here / "evil.pt")
        put(here / "evil.pkl", pickle.dumps(Evil(), 2))
        for name in ("evil.pt", "evil.pkl"):
            printed = refused("diagnose", "--model", "wb_users:net", "--checkpoint", name, "--data", "prototypes")
            assert "could run code" in printed
            assert "weights_only" not in printed
            assert "add_safe_globals" not in printed
        assert not (here / "ran").exists()


def test_two_processes_that_start_at_once_keep_each_others_folders(here):
    """The temporary folder of a process that lives is not removed, that of one that has ended is."""
    path = here / "a"
    alive = temporary_path(path)
    ended = alive.with_name(alive.name.replace(f"-{os.getpid()}.", f"-{2**22 + 1}."))
    elsewhere = alive.with_name(".a.another-1.tmp")
    for each in (alive, ended, elsewhere):
        each.mkdir()
    assert leftovers(path) == [ended]
    os.utime(elsewhere, (0, 0))
    assert set(leftovers(path)) == {ended, elsewhere}
    assert contents(here)
