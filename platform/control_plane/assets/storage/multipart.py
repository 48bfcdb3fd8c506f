"""Parts of an upload: all of one size but the last, each with its checksum, joined and verified at the end."""

from __future__ import annotations

from control_plane.assets.storage import store
from control_plane.core.api.errors import Problem, conflict, unprocessable

PART_BYTES = 8 * 1024 * 1024
LARGE_PART_BYTES = 32 * 1024 * 1024
MOST_PARTS = 10_000  # a bucket joins no more pieces at once


def size_for(total_bytes: int) -> int:
    """Bytes of every part but the last, of an upload of this size."""
    return PART_BYTES if total_bytes <= PART_BYTES * MOST_PARTS else LARGE_PART_BYTES


def count(total_bytes: int) -> int:
    return max(1, -(-total_bytes // size_for(total_bytes)))


def put_part(upload_id: str, total_bytes: int, number: int, data: bytes, *, sha256: str | None) -> None:
    """Keep one part; putting it again replaces it. 422 for a wrong number, size or checksum."""
    if sha256 is None:
        raise unprocessable("checksum", f"part {number}: send its SHA-256 in the header X-Part-SHA256")
    last = count(total_bytes) - 1
    if not 0 <= number <= last:
        raise unprocessable("no_such_part", f"part {number}: this upload has parts 0 to {last}")
    size = size_for(total_bytes)
    wanted = total_bytes - size * last if number == last else size
    if len(data) != wanted:
        raise unprocessable("part_size", f"part {number} has {len(data)} bytes, it must have {wanted}")
    if (found := store.Blob.of(data).sha256) != sha256.lower():
        raise unprocessable("checksum", f"part {number}: X-Part-SHA256 is {sha256}, the bytes have {found}")
    try:
        store.put_part(upload_id, number, data)
    except store.PartsGone as error:
        raise missing_error(upload_id) from error


def join(upload_id: str, total_bytes: int, *, sha256: str) -> store.Blob:
    """All parts as one blob. 409 when some are missing; 422, and the parts are gone, when the whole is another."""
    wanted = count(total_bytes)
    missing = sorted(set(range(wanted)) - set(store.received_parts(upload_id)))
    if missing:
        raise conflict("parts_missing", f"{len(missing)} of {wanted} parts are missing, first {missing[0]}")
    try:
        blob = store.join_parts(upload_id, wanted)
    except store.PartsGone as error:
        raise missing_error(upload_id) from error
    if sha256 and blob.sha256 != sha256:
        store.delete_if_unreferenced(blob.sha256)
        store.drop_parts(upload_id)
        raise unprocessable(
            "checksum",
            f"the joined parts have SHA-256 {blob.sha256}, announced was {sha256}; send them again",
        )
    return blob


def try_join(upload_id: str, total_bytes: int, *, sha256: str) -> tuple[store.Blob, Problem | None]:
    """`join`, outside of any lock: a refusal stands only if no other request has joined the parts."""
    try:
        return join(upload_id, total_bytes, sha256=sha256), None
    except Problem as refusal:
        if refusal.code not in ("parts_missing", "upload_ended"):
            raise
        return store.Blob("", 0), refusal


def missing_error(upload_id: str) -> Problem:
    return conflict(
        "upload_ended", f"upload {upload_id} was completed or aborted by another request; look at it again"
    )
