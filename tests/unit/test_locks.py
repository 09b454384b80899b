"""Locks between processes: held, free again, and never through a link. Who is refused is tested in test_store.py."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from walkback.core.errors import InputError
from walkback.core.locks import LockHeldError, acquire_lock
from walkback.runs import store
from walkback.runs.stored_plan import PLAN_LOCK, store_plan


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that has locked `path` and waits."""
    code = (
        "import sys; from pathlib import Path; from walkback.core.locks import acquire_lock\n"
        "lock = acquire_lock(Path(sys.argv[1])); print('locked', flush=True); sys.stdin.read()"
    )
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_lock_is_refused_while_its_process_lives_and_free_when_it_was_killed(tmp_path):
    with hold(tmp_path / "lock") as other:
        with pytest.raises(LockHeldError):
            acquire_lock(tmp_path / "lock", wait=False)
        other.kill()
    acquire_lock(tmp_path / "lock", wait=False).release()


def test_waiting_for_a_lock_ends_when_it_is_released_in_another_thread(tmp_path):
    lock, got = acquire_lock(tmp_path / "lock"), threading.Event()

    def wait():
        acquire_lock(tmp_path / "lock").release()
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.wait(0.2)
    lock.release()
    thread.join(60)
    assert got.is_set()


def test_a_process_that_waited_for_a_removed_file_locks_a_new_one(tmp_path):
    path = tmp_path / "lock"
    first, second = acquire_lock(path), []
    thread = threading.Thread(target=lambda: second.append(acquire_lock(path)))
    thread.start()
    path.unlink()
    first.release()
    thread.join(60)
    with pytest.raises(LockHeldError):
        acquire_lock(path, wait=False)
    second[0].release()


KINDS = {
    "symbolic": lambda path, victim: path.symlink_to(victim),
    "dangling": lambda path, victim: path.symlink_to(victim.with_name("nowhere")),
    "hard": lambda path, victim: path.hardlink_to(victim),
    "fifo": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_m1_a_lock_that_is_a_link_or_special_file_is_refused(tmp_path, kind):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    KINDS[kind](tmp_path / "lock", victim)
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InputError, match=r"Could not lock .*lock: it is a link, a folder or a special file\."):
        acquire_lock(tmp_path / "lock", wait=False)
    assert victim.read_text() == "precious"
    assert sorted(os.listdir(tmp_path)) == before


def test_m1_a_plan_lock_that_is_a_link_creates_nothing_elsewhere(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / PLAN_LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="it is a link"):
        store_plan(out, [])
    assert not (tmp_path / "elsewhere").exists()


def test_m1_a_run_whose_lock_is_a_link_is_refused(tmp_path):
    record = {"run": "a", "method": "bp", "seed": 1, "config": {}, "digest": "0", "rule_has_state": False}
    run = store.create_run(tmp_path / "a", {**record, "data": {}, "versions": {}})
    (run.path / store.LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="it is a link"):
        run.lock()
    assert not (tmp_path / "elsewhere").exists()


def test_nothing_needs_fcntl(tmp_path):
    """Windows has none; filelock has another way there."""
    code = "import sys; sys.modules['fcntl'] = None; import walkback.runs.train_runs, walkback.data.where"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
