"""Endpoint to which agents ship what their jobs wrote."""

from __future__ import annotations

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request

from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import Problem
from control_plane.core.api.numbers import parse_int
from control_plane.fleet.authentication import IsNode, NodeAuthentication, node_of
from control_plane.telemetry.ingest import batches
from control_plane.telemetry.ingest.chunks import parse_batch
from oolong.contracts.agent import BATCH_BYTES, BATCH_HEAD_BYTES, TelemetryBatchReply

MAX_BODY_BYTES = BATCH_HEAD_BYTES + BATCH_BYTES
RAW_BODY = {"application/octet-stream": OpenApiTypes.BINARY}


class TelemetryBatchView(ApiView):
    """Raw bytes from the node of the jobs that wrote them."""

    authentication_classes = [NodeAuthentication]
    permission_classes = [IsNode]

    @extend_schema(
        operation_id="ship_telemetry", request=RAW_BODY, responses=TelemetryBatchReply,
    )  # fmt: skip
    def post(self, request: Request) -> HttpResponse:
        """Append to several outbox files and logs at once.

        The body is one line of JSON that describes the chunks (`job_id`, `file`, `offset`, `bytes`), followed by
        their bytes. Each chunk has its own result in the response.
        """
        chunks = parse_batch(_body(request))
        reply = TelemetryBatchReply(chunks=batches.ingest_batch(node_of(request), chunks))
        return HttpResponse(msgspec.json.encode(reply), content_type="application/json")


def _body(request: Request) -> bytes:
    """Reject a body that is too long before reading it."""
    length = request.headers.get("Content-Length", "0")
    if (announced := parse_int(length)) is None or announced > MAX_BODY_BYTES:
        raise Problem(413, "too_large", f"a body of {length} bytes; ship at most {MAX_BODY_BYTES} at once")
    return request._request.body
