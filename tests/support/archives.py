"""Tar archives: those of known origin, unpacked on every Python that Oolong supports, and odd ones to be refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract everything; with the data filter where Python has it (Debian 12's 3.11.2 does not)."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)


def sparse(name: str, size: int, *, form: str) -> bytes:
    """An archive of one file that is a hole of `size` bytes, as tar --sparse writes it: form gnu or pax."""
    info = tarfile.TarInfo(name)
    if form == "pax":
        info.pax_headers = {"GNU.sparse.size": str(size), "GNU.sparse.map": f"{size},0"}
        header = info.tobuf(tarfile.PAX_FORMAT)
    else:
        info.type = tarfile.GNUTYPE_SPARSE
        block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
        block[386:410] = b"%011o\0%011o\0" % (size, 0)  # its only piece: nothing, behind the hole
        block[483:495] = b"%011o\0" % size
        block[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(block))[0]  # type: ignore[attr-defined]
        header = bytes(block)
    whole = io.BytesIO(header)
    with tarfile.open(fileobj=whole) as tar:
        member = tar.getmembers()[0]
        assert (member.isreg(), member.issparse(), member.size) == (True, True, size)
    return header + bytes(tarfile.RECORDSIZE - len(header) % tarfile.RECORDSIZE)
