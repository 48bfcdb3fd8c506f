"""Tar archives of known origin, unpacked on every Python that Oolong supports."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Extract everything; with the data filter where Python has it (Debian 12's 3.11.2 does not)."""
    if hasattr(tarfile, "data_filter"):
        archive.extractall(folder, filter="data")
    else:
        archive.extractall(folder)
