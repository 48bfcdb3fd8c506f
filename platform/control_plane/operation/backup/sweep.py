"""Bytes that nobody names: of imports that came to nothing, of requests that were killed between blob and row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from control_plane.catalog import store
from control_plane.catalog.naming import BY_CODE
from control_plane.catalog.storage.blob import ListedBlob
from control_plane.operation.backup.references import references

# A blob is written before the row that names it.
YOUNG = timedelta(hours=1)
SWEPT_AFTER = timedelta(days=1)


def unnamed(*, now: datetime, older_than: timedelta = YOUNG) -> list[ListedBlob]:
    """By their hash. Also while the store is in use: what is named since the rows were read is left out."""
    named = {reference.sha256 for reference in references()} | BY_CODE
    found = [
        blob for blob in store.listed() if blob.sha256 not in named and now - blob.touched_at > older_than
    ]
    if not found:
        return []
    since = {reference.sha256 for reference in references()}
    return sorted((blob for blob in found if blob.sha256 not in since), key=lambda blob: blob.sha256)


def sweep(*, now: datetime, older_than: timedelta = SWEPT_AFTER) -> Iterator[ListedBlob]:
    """Free them, each as it is found again to be named by nobody; those that were freed."""
    for blob in unnamed(now=now, older_than=older_than):
        if store.free(blob.sha256):
            yield blob
