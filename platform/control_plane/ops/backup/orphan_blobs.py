"""Blobs that no row references: of failed imports, of requests that were killed between blob and row.

A database names only its own: of a bucket that is another's, nearly everything would be named by nobody. So a store
says whose it is, and no database but that one frees here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection

from control_plane.assets.storage import store
from control_plane.assets.storage.blob import ListedBlob
from control_plane.assets.storage.blob_columns import BY_CODE
from control_plane.ops.backup.blob_references import references

# A blob is written before the row that names it.
YOUNG = timedelta(hours=1)
SWEPT_AFTER = timedelta(days=1)
USUAL_SHARE = (
    0.2  # of the objects or of the bytes; where more is named by nobody, the rows may be the wrong ones
)


@dataclass(frozen=True)
class Survey:
    objects: int  # of all that is there
    bytes: int
    unnamed: list[ListedBlob]  # by their hash

    @property
    def unnamed_bytes(self) -> int:
        return sum(blob.bytes for blob in self.unnamed)

    @property
    def is_unusual(self) -> bool:
        return len(self.unnamed) > USUAL_SHARE * self.objects or self.unnamed_bytes > USUAL_SHARE * self.bytes


def survey(*, now: datetime, older_than: timedelta = YOUNG) -> Survey:
    """Also while the store is in use: what is named since the rows were read is left out."""
    named = {reference.sha256 for reference in references()} | BY_CODE
    objects = size = 0
    found = []
    for blob in store.listed():
        objects, size = objects + 1, size + blob.bytes
        if blob.sha256 not in named and now - blob.touched_at > older_than:
            found.append(blob)
    since = {reference.sha256 for reference in references()} if found else set()
    unnamed = sorted((blob for blob in found if blob.sha256 not in since), key=lambda blob: blob.sha256)
    return Survey(objects, size, unnamed)


def sweep(
    found: list[ListedBlob], *, now: datetime, older_than: timedelta = SWEPT_AFTER
) -> Iterator[ListedBlob]:
    """Free them, each as it is found again to be old and named by nobody; those that were freed."""
    for blob in found:
        if store.delete_if_unreferenced(blob.sha256, untouched_since=now - older_than):
            yield blob


def this_database() -> str:
    """Tells it from every other, a copy that was restored from its dump too; PostgreSQL's own words for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT system_identifier || '/' || oid FROM pg_control_system(), pg_database "
            "WHERE datname = current_database()"
        )
        return str(cursor.fetchone()[0])
