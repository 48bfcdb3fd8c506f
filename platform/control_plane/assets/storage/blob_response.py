"""Blobs as responses."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponseBase

from control_plane.assets.storage import store
from control_plane.core.api.range_response import file_response


def blob_response(request: HttpRequest, sha256: str, *, filename: str = "") -> HttpResponseBase:
    """A blob, or the asked range of it, from wherever it is stored."""
    size = store.size_of(sha256)
    return file_response(request, store.open_blob(sha256), size=size, etag=sha256, filename=filename)
