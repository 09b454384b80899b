"""Read some files of a tar archive into memory: base names of regular members only, no path is followed."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import IO, Any

from walkback.core.reading.regular_files import Fault, open_regular


def read_tar(path: Path, wanted: Collection[str], limit: int, fault: Fault) -> dict[str, bytes]:
    """The files of a .tar.gz archive whose base names are in `wanted`; the archive unpacks to at most `limit` bytes."""
    found: dict[str, bytes] = {}
    try:
        with open_regular(path, fault, follow=True) as file, gzip.open(file, "rb") as unpacked:
            # tarfile's stream mode needs only read(); its type stubs require more.
            capped: Any = _Capped(unpacked, limit, fault)
            with tarfile.open(fileobj=capped, mode="r|") as archive:
                for member in archive:
                    parts = PurePosixPath(member.name)
                    # A sparse member can unpack to any number of zeros that are not in the stream.
                    plain = member.isreg() and not member.issparse()
                    if not plain or parts.is_absolute() or ".." in parts.parts or parts.name not in wanted:
                        continue
                    if parts.name in found:
                        raise fault(f"holds two files called '{parts.name}'")
                    content = archive.extractfile(member)
                    found[parts.name] = content.read() if content else b""
                while capped.read(2**20):
                    pass  # Read to the end of the gzip stream, where its checksum is.
    except (gzip.BadGzipFile, tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError) as error:
        raise fault(f"is no whole .tar.gz archive: {error}. It may have been cut short") from error
    return found


class _Capped:
    """A stream that refuses more than `limit` bytes, so that a small archive cannot fill the memory."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile, limit: int, fault: Fault) -> None:
        self.stream, self.left, self.fault = stream, limit, fault

    def read(self, size: int) -> bytes:
        block = self.stream.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise self.fault("unpacks to far more than the data set")
        return block
