"""What lies in a stored checkpoint: names, sizes, and where in the download each file's bytes are.

With offset and size a client fetches one file of a tar of gigabytes by one ranged request.
"""

from __future__ import annotations

import json
import tarfile
from dataclasses import dataclass
from typing import IO, Any

MAX_MANIFEST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class StoredFile:
    name: str
    bytes: int
    offset: int  # of its first byte in the download
    sha256: str  # by the manifest; "" for the manifest itself, and where there is none


def files_of(archive: IO[bytes]) -> list[StoredFile]:
    """The regular files of a stored tar, in its order; none when it is not a tar."""
    try:
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            members = [member for member in tar if member.isreg()]
            known = _hashes(tar, members)
    except tarfile.TarError:
        return []
    return [
        StoredFile(member.name, member.size, member.offset_data, known.get(member.name, ""))
        for member in members
    ]


def _hashes(tar: tarfile.TarFile, members: list[tarfile.TarInfo]) -> dict[str, str]:
    manifest = next((member for member in members if member.name == "MANIFEST.json"), None)
    if manifest is None or manifest.size > MAX_MANIFEST_BYTES:
        return {}
    source = tar.extractfile(manifest)
    assert source is not None  # it is a regular file
    try:
        document: Any = json.loads(source.read())
    except ValueError:
        return {}
    listed = document.get("files", []) if isinstance(document, dict) else []
    return {
        str(entry["name"]): str(entry["sha256"])
        for entry in listed
        if isinstance(entry, dict) and "name" in entry and "sha256" in entry
    }
