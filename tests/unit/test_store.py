"""A run on disk survives kills, full disks and damage, or says in one sentence what is wrong."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from dying import contents, dies, in_child
from walkback.core.content_hash import SHA256, with_hash
from walkback.core.errors import EXIT_INPUT, InputError
from walkback.core.files import write_atomic
from walkback.runs import store
from walkback.runs.store import LOG, MODEL, PREVIOUS, RECORD, RESUME, RULE, Checkpoint

RESULT, TIMINGS = {"test_acc": 0.5, "epochs": 2}, {"seconds": 1.0}


def record(**changes):
    plain = {"method": "dfa", "seed": 1, "config": {"epochs": 2}, "digest": "d", "rule_has_state": True}
    return {"run": "a-run", **plain, "data": {"digest": "e"}, "versions": {}, **changes}


def arrays(number):
    return {"params/w": np.full((3, 2), number, np.float32), "state/B": np.full(2, -number, np.float64)}


def make(path, epoch=0, **changes):
    """A run with a checkpoint of `epoch` and nothing older, and one line of log for each epoch."""
    run = store.create_run(path, record(**changes))
    for done in range(1, epoch + 1):
        save(run, done)
        run.drop_previous()
    return run


def save(run, epoch, fleet=("a-run",)):
    run.append_log({"epoch": epoch})
    run.save_checkpoint(Checkpoint(epoch, run.log_length(), fleet, epoch / 4, arrays(epoch)))


def finish(run):
    run.finish({"w": np.ones(3)}, {"B": np.zeros(2)}, RESULT, TIMINGS)


def assert_rewinds(run, epoch):
    """The run goes on from `epoch`, and its log has exactly the lines of the epochs before."""
    found = run.checkpoint(epoch)
    run.rewind(epoch)
    assert [row["epoch"] for row in run.log()] == list(range(1, epoch + 1))
    if epoch == 0:
        assert found is None
        return
    assert (found.epoch, found.seconds, found.log_bytes) == (epoch, epoch / 4, run.log_length())
    assert found.arrays.keys() == arrays(epoch).keys()
    for name, array in arrays(epoch).items():
        assert np.array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
    assert run.checkpoint_epochs() == {0: "", epoch: RESUME}


def refused(path, what):
    """Opening and using the run is refused with `what`, and nothing is changed by it."""
    before = contents(path.parent)
    with pytest.raises(InputError, match=what) as caught:
        use(path)
    assert caught.value.exit_code == EXIT_INPUT
    assert "\n" not in str(caught.value)
    assert contents(path.parent) == before


def use(path):
    run = store.open_run(path)
    if run.is_done:
        run.model(), run.rule_state(), run.log()
    else:
        epoch = max(run.checkpoint_epochs())
        run.checkpoint(epoch), run.rewind(epoch)


class TestLife:
    def test_a_new_run_opens_as_it_was_created(self, tmp_path):
        run = store.create_run(tmp_path / "deep" / "a-run", record())
        assert run.record == with_hash({"format": store.RUN_FORMAT, "status": "running", **record()})
        again = store.open_run(run.path)
        assert again.record == run.record
        assert (again.is_done, again.log(), again.fleet_names(), again.checkpoint_epochs()) == (False, [], (), {0: ""})
        assert [path.name for path in run.path.parent.iterdir()] == ["a-run"]

    @pytest.mark.parametrize("in_the_way", ["folder", "file", "run"])
    def test_what_is_there_is_never_created_over(self, tmp_path, in_the_way):
        path = tmp_path / "a-run"
        {"folder": path.mkdir, "file": path.touch, "run": lambda: make(path, 2)}[in_the_way]()
        before = contents(tmp_path)
        with pytest.raises(InputError, match=r"exists already\. Add --resume to go on with it, or choose another"):
            store.create_run(path, record())
        assert contents(tmp_path) == before

    def test_the_last_two_checkpoints_are_kept_until_the_older_is_dropped(self, tmp_path):
        run = make(tmp_path / "a-run", 1)
        save(run, 2)
        assert run.checkpoint_epochs() == {0: "", 1: PREVIOUS, 2: RESUME}
        run.drop_previous()
        assert run.checkpoint_epochs() == {0: "", 2: RESUME}

    def test_one_that_goes_away_under_a_reader_is_no_damage(self, tmp_path, monkeypatch):
        """As where a plan is made of a run that another process trains: it has just been replaced by a newer one."""
        run = make(tmp_path / "a-run", 1)
        save(run, 2)
        real = store.read_metadata

        def late(path, fault):
            run.drop_previous()
            return real(path, fault)

        monkeypatch.setattr(store, "read_metadata", late)
        assert run.checkpoint_epochs() == {0: "", 2: RESUME}
        (run.path / RESUME).unlink()
        assert run.fleet_names() == ()

    @pytest.mark.parametrize("epoch", [0, 1, 2])
    def test_rewinding_forgets_what_came_after(self, tmp_path, epoch):
        run = make(tmp_path / "a-run", 1)
        save(run, 2)
        run.append_log({"epoch": 3})
        assert_rewinds(store.open_run(run.path), epoch)

    def test_a_torn_last_line_of_the_log_is_overlooked_until_it_is_cut_off(self, tmp_path):
        run = make(tmp_path / "a-run", 2)
        with (run.path / LOG).open("ab") as file:
            file.write(b'{"epoch": 3, "lo')
        assert [row["epoch"] for row in run.log()] == [1, 2]
        assert_rewinds(run, 2)

    def test_the_company_is_that_of_the_newest_checkpoint(self, tmp_path):
        run = make(tmp_path / "a-run", 1)
        save(run, 2, fleet=("a-run", "b-run"))
        assert store.open_run(run.path).fleet_names() == ("a-run", "b-run")

    def test_a_finished_run_gives_back_what_it_was_finished_with(self, tmp_path):
        run = make(tmp_path / "a-run", 2)
        finish(run)
        run.drop_checkpoints()
        again = store.open_run(run.path)
        assert again.is_done
        assert (again.record["result"], again.record["timings"]) == (RESULT, TIMINGS)
        assert np.array_equal(again.model()["w"], np.ones(3))
        assert np.array_equal(again.rule_state()["B"], np.zeros(2))
        assert sorted(path.name for path in run.path.iterdir()) == sorted([RECORD, MODEL, RULE, LOG])

    def test_a_rule_without_state_has_no_file(self, tmp_path):
        run = make(tmp_path / "a-run", 1, rule_has_state=False)
        run.finish({"w": np.ones(3)}, {}, RESULT, TIMINGS)
        assert store.open_run(run.path).rule_state() == {}
        assert not (run.path / RULE).exists()

    def test_results_of_an_unfinished_run_are_refused(self, tmp_path):
        run = make(tmp_path / "a-run", 1)
        for read in (run.model, run.rule_state):
            with pytest.raises(InputError, match=r"is not finished\. Finish it with the same command and --resume"):
                read()

    def test_runs_are_found_in_a_folder_and_a_run_is_found_by_itself(self, tmp_path):
        make(tmp_path / "b")
        make(tmp_path / "a")
        make(tmp_path / ".half-made")
        (tmp_path / "no-run").mkdir()
        assert store.find_runs(tmp_path) == [tmp_path / "a", tmp_path / "b"]
        assert store.find_runs(tmp_path / "a") == [tmp_path / "a"]
        with pytest.raises(InputError, match="There is no folder"):
            store.find_runs(tmp_path / "nowhere")


class TestKills:
    """Every test kills a process before each of its file operations in turn and looks at what is left."""

    def test_creating(self, tmp_path):
        for operation in itertools.count():
            path = tmp_path / str(operation) / "a-run"
            died = dies(operation, lambda path=path: store.create_run(path, record()))
            found = store.find_runs(path.parent) if path.parent.exists() else []
            assert found == ([path] if path.exists() else []), "half a run is listed"
            if path.exists():
                assert store.open_run(path).record["run"] == "a-run"
            else:
                assert died
                store.create_run(path, record())
            if not died:
                break
        assert operation > 5

    def test_the_first_checkpoint(self, tmp_path):
        for operation in itertools.count():
            run = make(tmp_path / str(operation))
            died = dies(operation, lambda run=run: save(run, 1))
            again = store.open_run(run.path)
            assert_rewinds(again, max(again.checkpoint_epochs()))
            if not died:
                break
        assert 1 in again.checkpoint_epochs()

    @pytest.mark.slow
    def test_a_fleets_checkpoints_and_going_back_to_them(self, tmp_path):
        """Two members; a second kill comes while the first one's damage is being mended."""
        after = set()
        template = make(tmp_path / "template", 1).path
        for first in itertools.count():
            for second in itertools.count():
                members = [copy(template, tmp_path / f"{first}-{second}-{name}") for name in ("a", "b")]
                died = dies(first, lambda members=members: save_fleet(members, 2))
                died_again = dies(second, lambda members=members: go_on(members))
                after.add(common(members))
                assert common(members) in (1, 2)
                go_on(members)
                if not died_again:
                    break
            if not died:
                break
        assert after == {1, 2}

    def test_finishing(self, tmp_path):
        for operation in itertools.count():
            run = make(tmp_path / str(operation), 2)
            died = dies(operation, lambda run=run: (finish(run), run.drop_checkpoints()))
            again = store.open_run(run.path)
            if again.is_done:
                assert again.model().keys() == {"w"}
                assert again.rule_state().keys() == {"B"}
            else:
                assert died
                assert_rewinds(again, 2)
            if not died:
                break
        assert again.is_done

    def test_what_a_killed_writer_left_is_swept_up_by_the_next_one(self, tmp_path):
        run = make(tmp_path / "a-run", 1)
        (run.path / f".{RESUME}.1.tmp").write_bytes(b"half")
        run.lock()
        assert not list(run.path.glob(".*"))
        run.unlock()


def copy(template, path):
    return store.open_run(shutil.copytree(template, path))


def save_fleet(members, epoch):
    for run in members:
        save(run, epoch)
    for run in members:
        run.drop_previous()


def common(members):
    return max(set.intersection(*(set(store.open_run(run.path).checkpoint_epochs()) for run in members)))


def go_on(members):
    epoch = common(members)
    for run in members:
        assert_rewinds(store.open_run(run.path), epoch)


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path):
        return make(tmp_path / "a-run", 2).path

    @pytest.fixture
    def done(self, path):
        finish(store.open_run(path))
        return path

    @pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[]", b"3", b"{}", b'{"run": "a-run"}'])
    def test_a_record_that_is_none_is_refused(self, path, content):
        (path / RECORD).write_bytes(content)
        refused(path, rf"a-run is damaged: {RECORD} .*Nothing was changed\. Move that folder away and train it again\.")

    @pytest.mark.parametrize(
        "key", ["run", "method", "seed", "status", "config", "digest", "rule_has_state", "data", "versions"]
    )
    def test_a_record_without_what_is_needed_is_refused(self, path, key):
        for value in (None, [1.5]):
            edit(path, **{key: value})
            refused(path, rf"{RECORD} (lacks|has .* at) the key '{key}'")

    @pytest.mark.parametrize("result", [{}, {"test_acc": None, "epochs": 2}, {"test_acc": 0.5}])
    def test_a_finished_record_with_half_a_result_is_refused(self, done, result):
        edit(done, result=result)
        refused(done, rf"{RECORD} (lacks|has .* at) the key 'result\.")

    @pytest.mark.parametrize("key", ["result", "timings", "files"])
    def test_a_finished_record_without_its_result_is_refused(self, done, key):
        edit(done, **{key: None})
        refused(done, rf"{RECORD} lacks the key '{key}'")

    def test_another_format_is_refused_with_both_numbers(self, path):
        edit(path, format=99)
        refused(path, r"was written in format 99; this version of walkback reads format 1\. Open it with the version")

    def test_no_folder_and_no_record_are_refused(self, path):
        refused(path.with_name("nowhere"), "There is no run at")
        (path / RECORD).unlink()
        refused(path, rf"{RECORD} is missing")

    def test_a_checkpoint_cut_off_anywhere_is_refused(self, path):
        whole = (path / RESUME).read_bytes()
        for length in [*range(12), *range(12, len(whole), 37), len(whole) - 1]:
            (path / RESUME).write_bytes(whole[:length])
            refused(path, rf"{RESUME} (cannot be read|has [\d,]+ bytes; its header says)")

    def test_a_checkpoint_of_something_else_is_refused(self, path):
        (path / RESUME).write_bytes(safetensors_of({"w": np.ones(1)}, None))
        refused(path, rf"{RESUME} has 'nothing' as its epoch")
        facts = {"epoch": "2", "log_bytes": "0", "seconds": "0", "fleet": "[]", "digest": "another"}
        (path / RESUME).write_bytes(safetensors_of({"w": np.ones(1)}, facts))
        refused(path, rf"{RESUME} belongs to another configuration")

    def test_a_log_shorter_than_its_checkpoint_says_is_refused(self, path):
        length = (path / LOG).stat().st_size
        os.truncate(path / LOG, length - 1)
        refused(path, rf"{LOG} has {length - 1} bytes where its checkpoint says {length}")
        (path / LOG).unlink()
        refused(path, rf"{LOG} has 0 bytes where its checkpoint says {length}")

    @pytest.mark.parametrize("name", [MODEL, RULE])
    def test_a_final_file_that_is_gone_is_missed(self, done, name):
        (done / name).unlink()
        refused(done, rf"{name} is missing")

    @pytest.mark.parametrize("name", [MODEL, RULE])
    def test_a_final_file_with_one_changed_bit_is_refused(self, done, name):
        data = bytearray((done / name).read_bytes())
        data[-1] ^= 1
        (done / name).write_bytes(data)
        refused(done, rf"{name} is not the file that was written \(its sha256 differs\)")

    @pytest.mark.parametrize("is_hashed", [True, False], ids=["hashed", "0.8.1"])
    def test_a_finished_runs_log_that_cannot_be_read_is_refused(self, done, is_hashed):
        (done / LOG).write_text('{"epoch": 1}\n{"epo')
        if not is_hashed:
            edit(done, **{SHA256: None, store.LOG_HASH: None})
        refused(done, f"{LOG} is not the file that was written" if is_hashed else f"{LOG} cannot be read")


def edit(path, **changes):
    """Change the record; None takes a key out."""
    plain = json.loads((path / RECORD).read_text()) | changes
    (path / RECORD).write_text(json.dumps({key: value for key, value in plain.items() if value is not None}))


def safetensors_of(tensors, facts):
    return store.safetensors.numpy.save(tensors, metadata=facts)


def fails(number):
    def fail(*_words, **_named):
        raise OSError(number, os.strerror(number))

    return fail


class TestDisk:
    @pytest.mark.parametrize("call", ["fsync", "replace"])
    @pytest.mark.parametrize(
        ("number", "advice"),
        [
            (errno.ENOSPC, r"No space left on device\. The disk is full: free some space, or use another folder\."),
            (errno.EDQUOT, r"Your disk quota is used up: free some space, or use another folder\."),
            (errno.EROFS, r"The file system is read-only: use another folder\."),
            (errno.EACCES, r"You may not write there: use another folder or change its permissions\."),
            (errno.EIO, r"Input/output error\. Check the path and try again\."),
        ],
    )
    def test_a_failed_write_is_a_sentence_and_leaves_the_old_file(self, tmp_path, monkeypatch, call, number, advice):
        path = tmp_path / "file"
        path.write_bytes(b"old")
        before = contents(tmp_path)
        monkeypatch.setattr(os, call, fails(number))
        with pytest.raises(InputError, match=rf"^Could not write \S+: .*{advice}$"):
            write_atomic(path, b"new")
        assert contents(tmp_path) == before

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(self, tmp_path, monkeypatch, call):
        run = make(tmp_path / "a-run", 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails(errno.ENOSPC))
            with pytest.raises(InputError, match="The disk is full"):
                save(run, 2)
        assert_rewinds(store.open_run(run.path), 1)

    def test_a_run_that_cannot_be_created_leaves_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(os, "fsync", fails(errno.ENOSPC))
        with pytest.raises(InputError, match="The disk is full"):
            store.create_run(tmp_path / "a-run", record())
        assert contents(tmp_path) == {}

    def test_a_run_below_a_file_is_refused(self, tmp_path):
        (tmp_path / "file").write_bytes(b"mine")
        for path in (tmp_path / "file" / "a-run", tmp_path / "file" / "deep" / "a-run"):
            with pytest.raises(InputError, match="Could not create"):
                store.create_run(path, record())
        assert (tmp_path / "file").read_bytes() == b"mine"

    def test_a_real_limit_on_file_size_loses_nothing(self, tmp_path):
        """The system itself cuts a write short, as a full disk does."""
        run = make(tmp_path / "a-run", 1)
        big = Checkpoint(2, 0, ("a-run",), 0.0, {"w": np.zeros(100_000)})

        def work():
            resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
            with pytest.raises(InputError, match=r"Could not write .*File too large"):
                run.save_checkpoint(big)
            with pytest.raises(InputError, match=r"Could not write .*File too large"):
                run.append_log({"text": "x" * 20_000})

        assert in_child(work) == 0
        again = store.open_run(run.path)
        assert [row["epoch"] for row in again.log()] == [1]
        assert_rewinds(again, 1)


class TestLock:
    HOLD = """if True:
        import sys, time
        from pathlib import Path
        from walkback.core.errors import WalkbackError
        from walkback.runs.store import open_run
        try:
            run = open_run(Path(sys.argv[1]))
            run.lock()
        except WalkbackError as error:
            sys.exit(str(error))
        print("locked", flush=True)
        sys.stdin.read()
    """

    def hold(self, path):
        words = [sys.executable, "-c", self.HOLD, str(path)]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def test_a_second_process_is_refused_while_the_first_lives_and_not_after(self, tmp_path):
        path = make(tmp_path / "a-run").path
        with self.hold(path) as first:
            try:
                assert first.stdout.readline() == "locked\n"
                before = contents(tmp_path)
                with self.hold(path) as second:
                    out, err = second.communicate(timeout=30)
                assert (second.returncode, out) == (1, "")
                assert err == f"Another process is training {path}. Wait for it, or use another --out.\n"
                with pytest.raises(InputError, match="Another process is training"):
                    store.open_run(path).lock()
                assert contents(tmp_path) == before
            finally:
                first.send_signal(signal.SIGKILL)
        run = store.open_run(path)
        run.lock()
        run.unlock()

    def test_a_refused_lock_holds_nothing(self, tmp_path):
        one, two = make(tmp_path / "a-run"), store.open_run(tmp_path / "a-run")
        one.lock()
        with pytest.raises(InputError):
            two.lock()
        one.unlock()
        two.lock()
        two.unlock()

    def test_a_run_finished_by_another_process_meanwhile_is_not_trained_again(self, tmp_path):
        path = make(tmp_path / "a-run", 2).path
        late = store.open_run(path)
        finish(store.open_run(path))
        before = contents(path)
        with pytest.raises(InputError, match=r"has just finished .*Give the same command again\."):
            late.lock()
        assert contents(path) == before

    def test_a_file_system_without_locks_is_not_taken_for_another_process(self, tmp_path, monkeypatch):
        run = make(tmp_path / "a-run")
        monkeypatch.setattr(fcntl, "flock", fails(errno.ENOLCK))
        with pytest.raises(InputError, match=r"Could not lock .*No locks available"):
            run.lock()
