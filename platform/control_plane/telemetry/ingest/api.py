"""Endpoints to which agents ship what their jobs wrote."""

from __future__ import annotations

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import Problem
from control_plane.core.api.numbers import parse_int
from control_plane.fleet.authentication import IsNode, NodeAuthentication, node_of
from control_plane.telemetry.ingest import batches, outbox
from control_plane.telemetry.ingest.chunks import parse_batch
from control_plane.telemetry.query import selectors
from control_plane.telemetry.query.query_params import whole_number
from oolong.contracts.agent import BATCH_BYTES, BATCH_HEAD_BYTES, OutboxReply, TelemetryBatchReply

OUTBOX_BYTES = 1024 * 1024
RAW_BODY = {"application/octet-stream": OpenApiTypes.BINARY}
OFFSET = OpenApiParameter(
    "offset", OpenApiTypes.INT, required=True, description="of the body's first byte in the file"
)


class AgentUploadView(ApiView):
    """Raw bytes from the node of the jobs that wrote them."""

    authentication_classes = [NodeAuthentication]
    permission_classes = [IsNode]

    def _body(self, request: Request, limit: int) -> bytes:
        # Reject a body that is too long before reading it.
        length = request.headers.get("Content-Length", "0")
        if (announced := parse_int(length)) is None or announced > limit:
            raise Problem(413, "too_large", f"a body of {length} bytes; ship at most {limit} at once")
        return request._request.body


class OutboxIngestView(AgentUploadView):
    @extend_schema(
        operation_id="ship_outbox",
        parameters=[OFFSET],
        request=RAW_BODY,
        responses={200: OutboxReply, 409: OutboxReply},
    )
    def post(self, request: Request, job_id: str, file: str) -> Response:
        """Append to a job's outbox file.

        Whole lines of an outbox file from `offset` on. 409 with the expected offset when there would be a
        gap.
        """
        selectors.require_job_of_node(node_of(request), job_id)
        offset = whole_number(request, "offset", lowest=0)
        body = self._body(request, OUTBOX_BYTES)
        try:
            reached = outbox.ingest_outbox(job_id, file, offset=offset or 0, body=body)
        except outbox.OffsetGap as gap:
            return Response({"offset": gap.offset}, status=409)
        return Response({"offset": reached})


class LogIngestView(AgentUploadView):
    @extend_schema(
        operation_id="ship_log",
        parameters=[OFFSET],
        request=RAW_BODY,
        responses={200: OutboxReply, 409: OutboxReply},
    )
    def post(self, request: Request, job_id: str, incarnation: int) -> Response:
        """Append to a job's log.

        Bytes of the log from `offset` on. 409 with the expected offset when there would be a gap.
        """
        selectors.require_job_of_node(node_of(request), job_id)
        offset = whole_number(request, "offset", lowest=0)
        body = self._body(request, batches.MAX_LOG_CHUNK_BYTES)
        try:
            reached = outbox.ingest_log(job_id, incarnation, offset=offset or 0, body=body)
        except outbox.OffsetGap as gap:
            return Response({"offset": gap.offset}, status=409)
        return Response({"offset": reached})


class TelemetryBatchView(AgentUploadView):
    @extend_schema(
        operation_id="ship_telemetry", request=RAW_BODY, responses=TelemetryBatchReply,
    )  # fmt: skip
    def post(self, request: Request) -> HttpResponse:
        """Append to several outbox files and logs at once.

        The body is one line of JSON that describes the chunks (`job_id`, `file`, `offset`, `bytes`), followed by
        their bytes. Each chunk has its own result in the response.
        """
        body = self._body(request, BATCH_HEAD_BYTES + BATCH_BYTES)
        chunks = parse_batch(body)
        reply = TelemetryBatchReply(pieces=batches.ingest_batch(node_of(request), chunks))
        return HttpResponse(msgspec.json.encode(reply), content_type="application/json")
