"""Files as responses, with one byte range (RFC 9110) and a strong validator."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import IO

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse

from control_plane.core.api.errors import Problem

CHUNK = 256 * 1024
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def file_response(
    request: HttpRequest, file: IO[bytes], *, size: int, etag: str, filename: str = ""
) -> HttpResponseBase:
    """The open file, or the asked range of it. `etag` is its SHA-256; `filename` makes browsers save it."""
    first, last = _range(request, size, etag)
    partial = (first, last) != (0, size - 1)
    if request.method == "HEAD":
        file.close()
        response: HttpResponseBase = HttpResponse(content_type="application/octet-stream")
    else:
        # Under ASGI a plain iterator would be read whole into memory first.
        body = (
            _read_async(file, first, last) if isinstance(request, ASGIRequest) else _read(file, first, last)
        )
        response = StreamingHttpResponse(body, content_type="application/octet-stream")
    response.status_code = 206 if partial else 200
    response["Content-Length"] = str(max(0, last - first + 1))
    response["Accept-Ranges"] = "bytes"
    response["ETag"] = f'"{etag}"'
    if partial:
        response["Content-Range"] = f"bytes {first}-{last}/{size}"
    if filename:
        response["Content-Disposition"] = f'attachment; filename="{filename}"'
    return response


def _range(request: HttpRequest, size: int, etag: str) -> tuple[int, int]:
    header = request.headers.get("Range", "")
    if not header or request.headers.get("If-Range", f'"{etag}"') != f'"{etag}"':
        return 0, size - 1
    match = _RANGE.fullmatch(header.strip())
    if match is None:
        return 0, size - 1  # several ranges or another unit: the whole file is a valid answer
    start, end = match.groups()
    if not start and not end:
        return 0, size - 1
    if not start:
        first, last = max(0, size - int(end)), size - 1
    else:
        first, last = int(start), min(int(end), size - 1) if end else size - 1
    if first >= size or first > last:
        raise Problem(
            416, "range", f"the range {header!r} lies outside of the {size} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
    return first, last


def _read(file: IO[bytes], first: int, last: int) -> Iterator[bytes]:
    with file:
        file.seek(first)
        left = last - first + 1
        while left > 0 and (chunk := file.read(min(CHUNK, left))):
            left -= len(chunk)
            yield chunk


async def _read_async(file: IO[bytes], first: int, last: int) -> AsyncIterator[bytes]:
    chunks = _read(file, first, last)
    try:
        while chunk := await asyncio.to_thread(next, chunks, b""):
            yield chunk
    finally:
        file.close()
