"""Endpoints to search and download logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

from django.core.handlers.asgi import ASGIRequest
from django.http import StreamingHttpResponse
from django.utils.dateparse import parse_datetime
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.api.schema import NONEMPTY
from control_plane.runs.selectors import run_for
from control_plane.telemetry.logs.log_search import LEVELS, MAX_PATTERN_LENGTH, Search, search
from control_plane.telemetry.query import selectors
from control_plane.telemetry.query.query_params import one_of, whole_number
from control_plane.telemetry.query.serializers import FoundLinesSerializer
from control_plane.telemetry.stream.credentials import in_database


class LogSearchView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="search_logs",
        parameters=[
            OpenApiParameter("q", OpenApiTypes.STR, description="text in a line, case ignored"),
            OpenApiParameter(
                "regex", OpenApiTypes.BOOL, description="q is a regular expression of PostgreSQL"
            ),
            OpenApiParameter("level", OpenApiTypes.STR, enum=LEVELS, description="of this level or worse"),
            OpenApiParameter("job", OpenApiTypes.STR, description="a job's name or id"),
            OpenApiParameter("since", OpenApiTypes.DATETIME, description="the server got it then or later"),
            OpenApiParameter("until", OpenApiTypes.DATETIME),
            OpenApiParameter("limit", OpenApiTypes.INT, description="lines; 200 when left out, 1000 at most"),
            OpenApiParameter("cursor", OpenApiTypes.STR),
        ],
        responses=FoundLinesSerializer,
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Search the logs of a run.

        Lines in the order of their arrival. One request reads 64 MiB at most, and 2 seconds for a regular
        expression; continue with the cursor.
        """
        run = run_for(caller_of(request), run_id)
        text = request.query_params.get("q", "")
        if len(text) > MAX_PATTERN_LENGTH:
            raise invalid_parameter("q", f"q has {len(text)} characters; {MAX_PATTERN_LENGTH} at most")
        return Response(
            search(
                run,
                Search(
                    text=text,
                    regex=one_of(request, "regex", ("true", "false")) == "true",
                    level=one_of(request, "level", LEVELS),
                    job=request.query_params.get("job", ""),
                    since=_moment(request, "since"),
                    until=_moment(request, "until"),
                    limit=whole_number(request, "limit", lowest=1, highest=1000) or 200,
                    after=_position(request),
                ),
            )
        )


class LogDownloadView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="download_log",
        parameters=[
            OpenApiParameter("job", NONEMPTY, required=True, description="a job's id"),
            OpenApiParameter("incarnation", OpenApiTypes.INT, description="the newest when left out"),
        ],
        responses={(200, "text/plain"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, run_id: str) -> StreamingHttpResponse:
        """Download a job's log.

        The whole log of a job as a file, as far as it was kept.
        """
        run = run_for(caller_of(request), run_id)
        job = request.query_params.get("job", "")
        if not job:
            raise invalid_parameter("job", "job= is missing: a job's id, as GET /runs/{id}/logs lists them")
        incarnation = whole_number(request, "incarnation", lowest=0, highest=2**31 - 1)
        name, pieces = selectors.log_chunks(run, job, incarnation=incarnation)
        # Under ASGI a plain iterator would be read whole into memory first.
        body = _read_async(pieces) if isinstance(request._request, ASGIRequest) else pieces
        return StreamingHttpResponse(
            body,
            content_type="text/plain; charset=utf-8",
            headers={
                "Content-Disposition": f'attachment; filename="{name}"',
                "X-Content-Type-Options": "nosniff",
            },
        )


async def _read_async(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while piece := await in_database(next)(pieces, b""):
        yield piece
        await asyncio.sleep(0)


def _moment(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise invalid_parameter(name, f"{name}={text!r}: a moment with its zone, as 2026-01-31T12:00:00Z")
    return moment


def _position(request: Request) -> tuple[int, int] | None:
    text = request.query_params.get("cursor", "")
    if not text:
        return None
    chunk, _, within = text.partition(".")
    if (
        not chunk.isascii()
        or not chunk.isdecimal()
        or not within.removeprefix("-").isdecimal()
        or len(text) > 40
    ):
        raise invalid_parameter(
            "cursor", f"cursor={text!r} is not one of ours; take next_cursor of the answer before"
        )
    return int(chunk), int(within)
