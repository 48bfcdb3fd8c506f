"""Check that the blobs that rows reference exist and are unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from control_plane.assets.storage import store
from control_plane.ops.backup.blob_references import Reference, references
from control_plane.ops.backup.manifest import blob_file, digest, read_manifest
from control_plane.ops.backup.orphan_blobs import survey

MISSING, DAMAGED, EXTRA = "missing", "damaged", "extra"


@dataclass(frozen=True)
class Finding:
    kind: str  # missing, damaged, extra
    sha256: str
    detail: str

    @property
    def is_fault(self) -> bool:
        """Bytes that nobody names take room and hurt nobody."""
        return self.kind != EXTRA

    def __str__(self) -> str:
        return f"{self.kind}: {self.sha256} {self.detail}"


def verify_store(*, now: datetime, quick: bool = False) -> Iterator[Finding]:
    """Compare the store with the database, also while both are in use. `quick` compares sizes and reads no bytes."""
    named: dict[str, list[Reference]] = {}
    for reference in references():
        named.setdefault(reference.sha256, []).append(reference)
    for sha256, rows in sorted(named.items()):
        finding = _examine(sha256, rows, quick=quick)
        if finding is not None and _is_still_named(rows[0]):
            yield finding
    for blob in survey(now=now).unnamed:
        yield Finding(EXTRA, blob.sha256, f"{blob.bytes} bytes that no row names")


def _examine(sha256: str, rows: list[Reference], *, quick: bool) -> Finding | None:
    who = ", ".join(reference.row for reference in rows[:3])
    expected = next((reference.bytes for reference in rows if reference.bytes is not None), None)
    try:
        size = store.size_of(sha256)
        if expected is not None and size != expected:
            return Finding(DAMAGED, sha256, f"has {size} bytes instead of {expected}; needed by {who}")
        if not quick and (found := _digest(sha256)) != sha256:
            return Finding(DAMAGED, sha256, f"its bytes have the hash {found}; needed by {who}")
    except FileNotFoundError:
        return Finding(MISSING, sha256, f"needed by {who}")
    return None


def _digest(sha256: str) -> str:
    found = hashlib.sha256()
    with store.open_blob(sha256) as stream:
        for chunk in store.read_chunks(stream):
            found.update(chunk)
    return found.hexdigest()


def _is_still_named(reference: Reference) -> bool:
    """Retention may have freed it since the list was made."""
    return any(found == reference for found in references())


def verify_backup(folder: Path) -> Iterator[Finding]:
    """Read a whole backup. Raises CommandError when it is none."""
    manifest = read_manifest(folder)
    dump = folder / manifest.database
    if not dump.is_file():
        yield Finding(MISSING, manifest.database_sha256, str(dump))
    elif (found := digest(dump)[0]) != manifest.database_sha256:
        yield Finding(DAMAGED, manifest.database_sha256, f"{dump} has the hash {found}")
    for sha256 in sorted(manifest.blobs):
        file = blob_file(folder, sha256)
        if not file.is_file():
            yield Finding(MISSING, sha256, str(file))
        elif (found := digest(file)[0]) != sha256:
            yield Finding(DAMAGED, sha256, f"{file} has the hash {found}")
    for file in sorted(folder.glob("blobs/*/*")):
        if file.name not in manifest.blobs:
            yield Finding(EXTRA, file.name, str(file))
