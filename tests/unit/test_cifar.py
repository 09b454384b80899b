"""Reading CIFAR: all file formats give the same arrays, and bad files raise InputError."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from fake_cifar import (
    binary_files,
    both,
    fake,
    png,
    python_files,
    same,
    sheet_files,
    store_files,
    write_archive,
    write_folder,
)

from walkback.core.errors import InputError
from walkback.data import cifar
from walkback.data.cifar_spec import CIFAR10, CIFAR100, CIFAR_ARRAYS

CASES = pytest.mark.parametrize(("spec", "arrays"), both(), ids=["cifar10", "cifar100"])
FORMATS = {
    "python": python_files,
    "binary": binary_files,
    "sheets": sheet_files,
    "npm sheets": lambda spec, arrays: sheet_files(spec, arrays, "lables"),
    "store": store_files,
}


@CASES
@pytest.mark.parametrize("file_format", FORMATS)
def test_every_format_gives_the_same_arrays(spec, arrays, file_format, tmp_path):
    files = FORMATS[file_format](spec, arrays)
    folder = write_folder(tmp_path / "copy", files)
    archive = write_archive(tmp_path / "copy.tgz", files, "package/")
    for place in (folder, archive):
        got = cifar.read(spec, place)
        assert same(got, arrays)
        cifar.verify_cifar(got, spec, place)
        for name in CIFAR_ARRAYS:
            array = getattr(got, name)
            assert array.dtype == np.uint8
            assert array.flags.c_contiguous
            assert array.flags.writeable


@CASES
def test_load_finds_the_data_set_in_each_usual_place(spec, arrays, tmp_path):
    places = {
        spec.name: sheet_files(spec, arrays),
        spec.python_folder: python_files(spec, arrays),
        spec.binary_folder: binary_files(spec, arrays),
        ".": sheet_files(spec, arrays, "lables"),
    }
    for number, (place, files) in enumerate(places.items()):
        root = tmp_path / str(number)
        write_folder(root / place, files)
        assert same(cifar.load_cifar(spec, root), arrays), place
    archives = [spec.archive_name, spec.binary_archive]
    archives += [f"{spec.npm_package}-{spec.npm_version}.tgz"] if spec.npm_package else []
    for number, name in enumerate(archives):
        root = tmp_path / f"archive{number}"
        write_archive(root / name, binary_files(spec, arrays), "any/")
        assert same(cifar.load_cifar(spec, root), arrays), name


def test_not_found_lists_the_searched_places_and_the_command_to_run(tmp_path):
    write_folder(tmp_path / "cifar-10-batches-py", {"data_batch_1": b"", "data_batch_2": b""})
    with pytest.raises(cifar.NotFoundError) as caught:
        cifar.load_cifar(CIFAR10, tmp_path)
    message = str(caught.value)
    assert "cifar-10-batches-py' (it lacks data_batch_3, data_batch_4, data_batch_5, test_batch)" in message
    assert f"{tmp_path / 'cifar-10-batches-bin'}' (no such folder)" in message
    assert "`walkback data get cifar10`" in message
    assert "--from PATH" in message
    with pytest.raises(InputError, match="does not exist"):
        cifar.read(CIFAR10, tmp_path / "nowhere")


def test_a_wrong_pixel_names_the_array_both_hashes_and_the_place(tmp_path):
    spec, arrays = fake()
    _, other = fake(seed=1)
    mixed = dataclasses.replace(arrays, test_pixels=other.test_pixels)
    write_folder(tmp_path / spec.name, store_files(spec, mixed))
    with pytest.raises(InputError) as caught:
        cifar.load_cifar(spec, tmp_path)
    message = str(caught.value)
    for words in (
        "test_pixels",
        cifar.digests(other)["test_pixels"],
        spec.hashes["test_pixels"],
        str(tmp_path / spec.name),
        "`walkback data get cifar10 --force`",
    ):
        assert words in message


def test_verify_names_wrong_shapes_types_and_labels():
    spec, arrays = fake()
    with pytest.raises(InputError, match=r"train_pixels has shape \(49, 32, 32, 3\)"):
        cifar.verify_cifar(dataclasses.replace(arrays, train_pixels=arrays.train_pixels[1:]), spec)
    with pytest.raises(InputError, match="type int64, expected"):
        cifar.verify_cifar(dataclasses.replace(arrays, test_labels=arrays.test_labels.astype(np.int64)), spec)
    with pytest.raises(InputError, match="the label 10, expected 0 to 9"):
        cifar.verify_cifar(dataclasses.replace(arrays, test_labels=np.full(10, 10, dtype=np.uint8)), spec)


class Command:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return (os.system, (self.command,))


def test_a_pickle_that_runs_a_command_is_refused_without_running_it(tmp_path):
    spec, arrays = fake()
    proof = tmp_path / "proof"
    files = python_files(spec, arrays)
    files["data_batch_2"] = pickle.dumps({"data": Command(f"touch {proof}")}, protocol=2)
    with pytest.raises(InputError, match=r"'data_batch_2'.*global '(posix|nt)\.system'"):
        cifar.read(spec, write_folder(tmp_path / "copy", files))
    assert not proof.exists()


BAD_PICKLES = {
    "builtins": b"cbuiltins\neval\n(S'1'\ntR.",
    "numpy function": b"cnumpy\nload\n(S'x'\ntR.",
    "dotted": b"\x80\x04\x8c\x05numpy\x8c\x0cndarray.dump\x93.",
    "codec": b"c_codecs\nencode\n(S'x'\nS'zip'\ntR.",
    "empty": b"",
    "text": b"hello there",
    "list": pickle.dumps([1, 2]),
    "no data": pickle.dumps({"labels": [1]}),
    "data as text": pickle.dumps({"data": "x", "labels": [1]}),
    "floats": pickle.dumps({"data": np.zeros((10, 3072)), "labels": [1] * 10}, protocol=2),
    "labels too high": pickle.dumps({"data": np.zeros((10, 3072), np.uint8), "labels": [10] * 10}, protocol=2),
    "labels missing": pickle.dumps({"data": np.zeros((10, 3072), np.uint8)}, protocol=2),
    "huge array": b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(L99999999999999L\ntS'b'\ntR.",
}


@pytest.mark.parametrize("case", BAD_PICKLES)
def test_bad_pickles_are_refused_and_named(case, tmp_path):
    spec, arrays = fake()
    files = {**python_files(spec, arrays), "test_batch": BAD_PICKLES[case]}
    with pytest.raises(InputError, match=r"^'test_batch' in .*walkback data get cifar10 --force"):
        cifar.read(spec, write_folder(tmp_path / "copy", files))


def test_pickles_of_new_numpy_are_read_and_truncated_ones_are_refused(tmp_path):
    spec, arrays = fake()
    files = python_files(spec, arrays)
    modern = {
        name: contents.replace(b"numpy.core.multiarray", b"numpy._core.multiarray") for name, contents in files.items()
    }
    assert same(cifar.read(spec, write_folder(tmp_path / "modern", modern)), arrays)
    files["data_batch_1"] = files["data_batch_1"][:-500]
    with pytest.raises(InputError, match=r"'data_batch_1'.*no readable pickle"):
        cifar.read(spec, write_folder(tmp_path / "cut", files))


@CASES
def test_truncated_binaries_are_refused(spec, arrays, tmp_path):
    files = binary_files(spec, arrays)
    name = f"{spec.test_file}.bin"
    cut = {**files, name: files[name][:-1]}
    with pytest.raises(InputError, match="cut short"):
        cifar.read(spec, write_folder(tmp_path / "cut", cut))
    place = write_folder(tmp_path / "short", {**files, name: files[name][: -(spec.label_bytes + 3072)]})
    with pytest.raises(InputError, match=r"test_pixels.*shape \(9, 32, 32, 3\)"):
        cifar.verify_cifar(cifar.read(spec, place), spec, place)


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("test_batch.png", png(np.zeros((11, 32, 32, 3), np.uint8)), "1024x11 RGB image, expected 1024x10"),
        ("test_batch.png", png(np.zeros((10, 32, 32, 3), np.uint8), "L"), "1024x10 L image"),
        ("test_batch.png", png(np.zeros((10, 32, 32, 3), np.uint8))[:60], "no readable PNG"),
        ("test_batch.png", b"GIF89a", "no readable PNG"),
        ("test_labels.json", b"[1, 2", "cannot be read as JSON"),
        ("test_labels.json", b"\xff\xfe\x00", "not UTF-8"),
        ("test_labels.json", b"[" * 100_000, "nested more than 64 deep"),
        ("test_labels.json", b'{"0": 1}', "no list of labels"),
        ("train_labels.json", b"[1, 2.5, true]", "no list of labels"),
    ],
)
def test_bad_sheets_are_refused(name, contents, words, tmp_path):
    spec, arrays = fake()
    with pytest.raises(InputError, match=words):
        cifar.read(spec, write_folder(tmp_path / "copy", {**sheet_files(spec, arrays), name: contents}))


def test_a_sheet_with_a_huge_header_is_refused_before_decoding(tmp_path):
    spec, arrays = fake()
    sheet = bytearray(png(arrays.test_pixels))
    sheet[16:24] = (30_000).to_bytes(4, "big") * 2  # width and height in the PNG header
    files = {**sheet_files(spec, arrays), "test_batch.png": bytes(sheet)}
    with pytest.raises(InputError, match=r"test_batch\.png"):
        cifar.read(spec, write_folder(tmp_path / "copy", files))


@pytest.mark.parametrize("contents", [b"", b"\x93NUMPY", pickle.dumps([1])])
def test_bad_stores_are_refused(contents, tmp_path):
    spec, arrays = fake()
    files = {**store_files(spec, arrays), "train_labels.npy": contents}
    with pytest.raises(InputError, match=r"'train_labels\.npy'.*is not a \.npy file"):
        cifar.read(spec, write_folder(tmp_path / "copy", files))


def test_a_store_of_objects_is_not_unpickled(tmp_path):
    spec, arrays = fake()
    buffer, proof = io.BytesIO(), tmp_path / "proof"
    np.save(buffer, np.array([Command(f"touch {proof}")], dtype=object))
    files = {**store_files(spec, arrays), "train_labels.npy": buffer.getvalue()}
    with pytest.raises(InputError, match="no header of a plain array of numbers"):
        cifar.read(spec, write_folder(tmp_path / "copy", files))
    assert not proof.exists()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


def test_archive_members_that_point_elsewhere_are_ignored(tmp_path):
    spec, arrays = fake()
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    extra = [
        member("../../data_batch_1", size=5),
        member(f"{tmp_path}/planted/data_batch_1", size=5),
        member("x/data_batch_1", tarfile.SYMTYPE, str(secret)),
        member("x/data_batch_2", tarfile.LNKTYPE, "../secret"),
        member("x/data_batch_3", tarfile.FIFOTYPE),
        member("x/data_batch_4", tarfile.DIRTYPE),
    ]
    path = write_archive(tmp_path / "in" / "copy.tar.gz", python_files(spec, arrays), "x/", extra)
    before = sorted(tmp_path.rglob("*"))
    assert same(cifar.read(spec, path), arrays)
    assert sorted(tmp_path.rglob("*")) == before
    assert secret.read_bytes() == b"secret"


def test_an_archive_of_links_is_refused(tmp_path):
    spec, arrays = fake()
    for name, contents in python_files(spec, arrays).items():
        (tmp_path / name).write_bytes(contents)
    links = [member(f"x/{name}", tarfile.SYMTYPE, str(tmp_path / name)) for name in (*spec.train_files, spec.test_file)]
    with pytest.raises(InputError, match="no complete copy of cifar10: it has none of the files"):
        cifar.read(spec, write_archive(tmp_path / "copy.tgz", {}, "", links))


def test_archives_that_unpack_to_too_much_are_refused(tmp_path):
    spec, _ = fake()
    for name in ("data_batch_1", "unwanted"):
        bomb = write_archive(tmp_path / f"{name}.tgz", {}, "", [member(name, size=spec.size_limit)])
        with pytest.raises(InputError, match="unpacks to far more"):
            cifar.read(spec, bomb)


def test_a_sparse_member_is_not_expanded(tmp_path):
    spec, _ = fake()
    huge = member("data_batch_1", tarfile.GNUTYPE_SPARSE)
    block = bytearray(huge.tobuf(tarfile.GNU_FORMAT))
    block[483:495] = b"77777777777\0"  # the size it claims to have once expanded: 8 GiB
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    path = tmp_path / "sparse.tgz"
    path.write_bytes(gzip.compress(bytes(block) + bytes(10240)))
    with pytest.raises(InputError, match="none of the files"):
        cifar.read(spec, path)


def test_broken_archives_are_refused(tmp_path):
    spec, arrays = fake()
    whole = write_archive(tmp_path / "whole.tgz", python_files(spec, arrays), "x/").read_bytes()
    unpacked = gzip.decompress(whole)
    cases = {
        "half": whole[: len(whole) // 2],
        "no end": whole[:-9],
        "bad checksum": whole[:-8] + b"\0\0\0\0" + whole[-4:],
        "garbled": whole[:1000] + bytes(200) + whole[1200:],
        "cut inside": gzip.compress(unpacked[: len(unpacked) // 2], 1),
        "not gzip": b"PK\x03\x04 something else",
        "empty": b"",
        "not tar": gzip.compress(b"hello"),
    }
    for case, contents in cases.items():
        path = tmp_path / f"{case}.tgz"
        path.write_bytes(contents)
        with pytest.raises(InputError, match=rf"{case}\.tgz' is no whole \.tar\.gz"):
            cifar.read(spec, path)


def test_an_archive_with_two_copies_is_refused(tmp_path):
    spec, arrays = fake()
    files = python_files(spec, arrays)
    path = write_archive(tmp_path / "two.tgz", {**files, **{f"again/{name}": files[name] for name in files}}, "x/")
    with pytest.raises(InputError, match="two files called"):
        cifar.read(spec, path)


def test_an_oversized_file_and_an_unreadable_file_are_refused(tmp_path, monkeypatch):
    spec, arrays = fake()
    folder = write_folder(tmp_path / "copy", binary_files(spec, arrays))
    with (folder / "test_batch.bin").open("r+b") as file:
        file.truncate(spec.size_limit + 1)
    with pytest.raises(InputError, match=rf"has {spec.size_limit + 1:,} bytes; expected at most {spec.size_limit:,}"):
        cifar.read(spec, folder)

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=r"Could not read .*data_batch_1\.bin: Permission denied\. You may not read"):
        cifar.read(spec, folder)


@pytest.mark.data
@pytest.mark.parametrize("spec", [CIFAR10, CIFAR100], ids=lambda spec: spec.name)
def test_the_real_data_have_the_expected_hashes(spec):
    """The environment variable WALKBACK_TEST_DATA is a data folder, a folder of one data set, or an archive."""
    given = os.environ.get("WALKBACK_TEST_DATA")
    if not given:
        pytest.skip("WALKBACK_TEST_DATA is not set")
    place = Path(given)
    try:
        arrays = cifar.load_cifar(spec, place) if place.is_dir() else cifar.read(spec, place)
    except cifar.NotFoundError:
        pytest.skip(f"{place} holds no {spec.name}")
    cifar.verify_cifar(arrays, spec, place)
