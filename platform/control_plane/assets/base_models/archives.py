"""Model archives: how one is unfolded, and the deterministic tar that is kept.

Nothing is executed or unpickled here. Archive members are read one by one; links, devices, absolute names and
`..` are refused before a byte is written.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Protocol, cast

from oolong.contracts.model_report import Fault
from oolong.model_validation import InvalidModel
from oolong.model_validation.directory import MAX_FILES
from oolong.model_validation.errors import file_fault, printable

CHUNK = 1024 * 1024
MAX_TOTAL_BYTES = 256 * 1024**3
SMALL_BYTES = 256 * 1024**2  # whatever the archive, so much may unfold
MOST_TIMES = 20
# A decoder's errors have no number; the others are of names that no directory takes.
OF_THE_ARCHIVE = (None, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EINVAL)


def extract(archive: IO[bytes], folder: Path, *, packed_bytes: int) -> None:
    """Unpack a tar (plain, gz, bz2, xz) into `folder`, without its single top directory if it has one.

    What unfolds is counted as it is decoded, headers and all: weights hardly shrink, so an archive of
    `packed_bytes` that becomes many times as large holds none.
    """
    maximum = min(MAX_TOTAL_BYTES, max(SMALL_BYTES, MOST_TIMES * packed_bytes))
    try:
        with tarfile.open(fileobj=cast(IO[bytes], _Decoded(archive, maximum)), mode="r|") as tar:
            _extract_members(tar, folder, maximum)
    except (tarfile.TarError, EOFError, OSError, ValueError, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno not in OF_THE_ARCHIVE:
            raise  # a full or broken disk is the server's
        message = printable(f"not a readable tar archive: {error}")
        raise InvalidModel([Fault("/upload_id", "not_an_archive", message)]) from error


class _Decoded:
    """The bytes of the tar itself, at most `maximum` of them."""

    def __init__(self, archive: IO[bytes], maximum: int) -> None:
        head = archive.read(6)
        whole = cast(IO[bytes], _Whole(head, archive))
        if head[:2] == b"\x1f\x8b":
            self._source: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=whole))
        elif head[:3] == b"BZh":
            self._source = cast(IO[bytes], bz2.BZ2File(whole))
        elif head == b"\xfd7zXZ\x00":
            self._source = cast(IO[bytes], lzma.LZMAFile(whole))  # noqa: SIM115 - closing it closes nothing
        else:
            self._source = whole
        self._maximum, self._decoded = maximum, 0

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._decoded += len(data)
        if self._decoded > self._maximum:
            message = f"the archive unfolds to more than {self._maximum} bytes, too many for its size"
            raise InvalidModel([Fault("/upload_id", "too_large", message)])
        return data


class _Whole(io.RawIOBase):
    """A stream of which the head was read already."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            size = len(self._head) if size < 0 else size
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._rest.read(size)


def _extract_members(tar: tarfile.TarFile, folder: Path, maximum: int) -> None:
    written = files = 0
    for member in tar:
        name = _safe_name(member)
        if member.isdir():
            continue
        if not member.isreg():
            kind = "a link" if member.issym() or member.islnk() else "not a plain file"
            _refuse(member.name, "not_a_file", f"{member.name!r} is {kind}; only plain files are allowed")
        if member.sparse is not None:  # its holes are written as zeros that the archive does not have
            _refuse(member.name, "sparse", f"{member.name!r} is a sparse file; pack it without --sparse")
        files += 1
        if files > MAX_FILES or written + member.size > maximum:
            _refuse(member.name, "too_large", f"more than {MAX_FILES} files or {maximum} bytes")
        source = tar.extractfile(member)
        assert source is not None
        target = folder.joinpath(*name.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            _refuse(member.name, "twice", f"{member.name!r} is in the archive twice")
        with target.open("xb") as file:
            while chunk := source.read(CHUNK):
                written += len(chunk)
                if written > maximum:
                    _refuse(member.name, "too_large", f"the archive unfolds to more than {maximum} bytes")
                file.write(chunk)


def _safe_name(member: tarfile.TarInfo) -> PurePosixPath:
    name = PurePosixPath(member.name)
    parts = [part for part in name.parts if part != "."]
    if name.is_absolute() or ".." in parts or "\\" in member.name or "\x00" in member.name:
        _refuse(member.name, "unsafe_name", f"the name {member.name!r} leaves the archive's folder")
    return PurePosixPath(*parts) if parts else PurePosixPath("_")


def _refuse(name: str, code: str, message: str) -> None:
    raise InvalidModel([file_fault(name, code, message)])


class Writer(Protocol):
    def write(self, data: bytes, /) -> int: ...


def write_tar(root: Path, target: Writer) -> None:
    """The same files always give the same bytes, those of the SDK: sorted names, no times, no owners."""
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for path in _files(root):
            info = tarfile.TarInfo(str(path.relative_to(root)))
            info.size, info.mode, info.mtime = path.stat().st_size, 0o644, 0
            with path.open("rb") as file:
                tar.addfile(info, file)


def _files(root: Path) -> Iterator[Path]:
    yield from sorted(
        (path for path in root.rglob("*") if path.is_file()),
        key=lambda path: path.relative_to(root).as_posix(),
    )
