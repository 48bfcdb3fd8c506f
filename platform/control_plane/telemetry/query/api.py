"""The doors to telemetry: agents ship bytes in, people and programs read series, samples and logs."""

from __future__ import annotations

from typing import cast

import msgspec
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.errors import Problem
from control_plane.core.api.numbers import whole
from control_plane.core.api.pagination import paginate, read_page
from control_plane.core.api.query_params import refused
from control_plane.core.api.rendering import QuickJSONRenderer
from control_plane.core.api.schema import PAGE_PARAMETERS, page_of
from control_plane.fleet.authentication import IsNode, NodeAuthentication, node_of
from control_plane.runs.selectors import run_for
from control_plane.telemetry.alerts import alerts
from control_plane.telemetry.ingest import batches, outbox
from control_plane.telemetry.ingest.lines import LARGEST_X
from control_plane.telemetry.query import charts, selectors, trajectories
from control_plane.telemetry.query.query_params import number, one_of, short_text, whole_number
from control_plane.telemetry.query.serializers import (
    AlertSerializer,
    DocumentsSerializer,
    HistogramsSerializer,
    LogFilesSerializer,
    LogSerializer,
    MetricCatalogueSerializer,
    MetricNamesSerializer,
    MetricsSerializer,
    StateSnapshotSerializer,
    TrajectorySerializer,
    WholeTrajectorySerializer,
)
from oolong.contracts.agent import BATCH_BYTES, BATCH_HEAD_BYTES, OutboxReply, TelemetryBatchReply

OUTBOX_BYTES = 1024 * 1024
AXES, STITCHES, AGAINST = ["step", "time"], ["attempts", "lineage"], ["version", "tokens", "wall"]
SAMPLED_BECAUSE = ["group", "highest_reward", "lowest_reward", "longest", "widest_span"]
RAW_BODY = {"application/octet-stream": OpenApiTypes.BINARY}
OFFSET = OpenApiParameter(
    "offset", OpenApiTypes.INT, required=True, description="of the body's first byte in the file"
)


class ShipView(ApiView):
    """What both kinds of shipment share: raw bytes of a file from an offset on, by the node of the job."""

    authentication_classes = [NodeAuthentication]
    permission_classes = [IsNode]

    def _body(self, request: Request, most: int) -> bytes:
        # The length first: a body over it is refused before it is read.
        length = request.headers.get("Content-Length", "0")
        if (announced := whole(length)) is None or announced > most:
            raise Problem(413, "too_large", f"a body of {length} bytes; ship at most {most} at once")
        return request._request.body


class OutboxView(ShipView):
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
            reached = outbox.receive_outbox(job_id, file, offset=offset or 0, body=body)
        except outbox.OffsetGap as gap:
            return Response({"offset": gap.offset}, status=409)
        return Response({"offset": reached})


class ShipLogView(ShipView):
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
        body = self._body(request, batches.LOG_BYTES)
        try:
            reached = outbox.receive_log(job_id, incarnation, offset=offset or 0, body=body)
        except outbox.OffsetGap as gap:
            return Response({"offset": gap.offset}, status=409)
        return Response({"offset": reached})


class ShipmentView(ShipView):
    @extend_schema(
        operation_id="ship_pieces", request=RAW_BODY, responses=TelemetryBatchReply,
    )  # fmt: skip
    def post(self, request: Request) -> HttpResponse:
        """Append to several outbox files and logs at once.

        The body is one line of JSON that names the pieces (`job_id`, `file`, `offset`, `bytes`), followed by
        their bytes. Each piece has its own result in the answer.
        """
        body = self._body(request, BATCH_HEAD_BYTES + BATCH_BYTES)
        pieces = batches.read_shipment(body)
        reply = TelemetryBatchReply(pieces=batches.receive_shipment(node_of(request), pieces))
        return HttpResponse(msgspec.json.encode(reply), content_type="application/json")


class MetricDefinitionsView(ApiView):
    scopes = {"GET": None}

    @extend_schema(operation_id="metric_definitions", responses=MetricCatalogueSerializer)
    def get(self, request: Request) -> Response:
        """List metric definitions.

        Every metric that runs report: name, unit, meaning and direction.
        """
        return Response({"data": selectors.metric_definitions()})


class MetricNamesView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(operation_id="metric_names", responses=MetricNamesSerializer)
    def get(self, request: Request, run_id: str) -> Response:
        """List the metric names of a run.

        Which metrics the run has reported, with their newest step.
        """
        return Response({"data": selectors.metric_names(run_for(caller_of(request), run_id))})


class MetricsView(ApiView):
    scopes = {"GET": "runs:read"}
    renderer_classes = [QuickJSONRenderer]

    @extend_schema(
        operation_id="metrics",
        parameters=[
            OpenApiParameter("names", OpenApiTypes.STR, description="comma-separated; all when left out"),
            OpenApiParameter("axis", OpenApiTypes.STR, enum=AXES, description="step when left out"),
            OpenApiParameter(
                "from_x", OpenApiTypes.INT, description="only points with this x or a larger one"
            ),
            OpenApiParameter(
                "to_x", OpenApiTypes.INT, description="only points with this x or a smaller one"
            ),
            OpenApiParameter("after_x", OpenApiTypes.INT, description="only points with a larger x"),
            OpenApiParameter("limit", OpenApiTypes.INT, description="the first so many points, single ones"),
            OpenApiParameter(
                "max_points",
                OpenApiTypes.INT,
                description="resolution: a longer series comes in at most that many buckets",
            ),
            OpenApiParameter("attempt", OpenApiTypes.INT, description="only this attempt's"),
            OpenApiParameter(
                "source", OpenApiTypes.STR, description="only this source's: trainer, rollout-0/engine"
            ),
            OpenApiParameter(
                "join",
                OpenApiTypes.STR,
                enum=STITCHES,
                description="one line per name and source: attempts joined, or with lineage also the runs whose "
                "checkpoints this one went on from; step axis only",
            ),
            OpenApiParameter(
                "x_axis",
                OpenApiTypes.STR,
                enum=AGAINST,
                description="where each point lies on another axis: policy version, tokens trained on, unix seconds",
            ),
        ],
        responses=MetricsSerializer,
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Read metrics of a run.

        Series of several metrics at once, downsampled to the resolution asked for.
        """
        run = run_for(caller_of(request), run_id)
        return Response(charts.metrics(run, _wanted(request)))


class HistogramsView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="histograms",
        parameters=[
            OpenApiParameter("name", OpenApiTypes.STR, required=True),
            OpenApiParameter("after_x", OpenApiTypes.INT),
            OpenApiParameter("limit", OpenApiTypes.INT, description="the newest so many; 200 when left out"),
        ],
        responses=HistogramsSerializer,
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Get histograms of a run.

        Distributions such as staleness and response length, by step.
        """
        run = run_for(caller_of(request), run_id)
        name = request.query_params.get("name", "")
        if not name:
            raise refused("name", "name= is missing: staleness/consumed_tokens, say")
        limit = whole_number(request, "limit", lowest=1, highest=2000) or 200
        found = selectors.histograms(run, name=name, after_x=whole_number(request, "after_x"), limit=limit)
        return Response({"data": found})


class StatesView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="documents",
        parameters=[
            OpenApiParameter(
                "name", OpenApiTypes.STR, description="only this one; none where nobody wrote it"
            )
        ],
        responses=DocumentsSerializer,
    )
    def get(self, request: Request, run_id: str) -> Response:
        """List the state snapshots of a run.

        The newest snapshot of each kind, such as the ledger or the engines.
        """
        run = run_for(caller_of(request), run_id)
        return Response({"data": selectors.documents(run, name=request.query_params.get("name"))})


class StateView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(operation_id="state", responses=StateSnapshotSerializer)
    def get(self, request: Request, run_id: str, name: str) -> Response:
        """Get a state snapshot of a run.

        The newest snapshot of this name.
        """
        return Response(selectors.document(run_for(caller_of(request), run_id), name))


class TrajectoriesView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="list_trajectories",
        parameters=[
            *PAGE_PARAMETERS,
            OpenApiParameter("step_from", OpenApiTypes.INT, description="train step, inclusive"),
            OpenApiParameter("step_to", OpenApiTypes.INT),
            OpenApiParameter("reward_min", OpenApiTypes.FLOAT, description="inclusive"),
            OpenApiParameter("reward_max", OpenApiTypes.FLOAT),
            OpenApiParameter(
                "span_min",
                OpenApiTypes.INT,
                description="versions from its oldest token to its newest, at least",
            ),
            OpenApiParameter("row", OpenApiTypes.INT, description="of the dataset"),
            OpenApiParameter("attempt", OpenApiTypes.INT),
            OpenApiParameter("group", OpenApiTypes.STR, description="a group's id"),
            OpenApiParameter(
                "because", OpenApiTypes.STR, enum=SAMPLED_BECAUSE, description="why it was sampled"
            ),
            OpenApiParameter(
                "q", OpenApiTypes.STR, description="text in the prompt or the completion, case ignored"
            ),
        ],
        responses=page_of(TrajectorySerializer),
    )
    def get(self, request: Request, run_id: str) -> Response:
        """List sampled trajectories.

        Newest first. Filter by reward, step, policy version and text.
        """
        run = run_for(caller_of(request), run_id)
        wanted = trajectories.Filter(
            step_from=whole_number(request, "step_from", lowest=0),
            step_to=whole_number(request, "step_to", lowest=0),
            reward_min=number(request, "reward_min"),
            reward_max=number(request, "reward_max"),
            span_min=whole_number(request, "span_min", lowest=0, highest=2**31),
            row=whole_number(request, "row", lowest=0),
            attempt=whole_number(request, "attempt", lowest=1, highest=2**31 - 1),
            group=request.query_params.get("group", ""),
            because=one_of(request, "because", SAMPLED_BECAUSE),
            text=short_text(request, "q", most=500),
        )
        return Response(
            paginate(trajectories.found(run, wanted), read_page(request), trajectories.trajectory_as_json)
        )


class TrajectoryView(ApiView):
    scopes = {"GET": "runs:read"}
    renderer_classes = [QuickJSONRenderer]

    @extend_schema(operation_id="get_trajectory", responses=WholeTrajectorySerializer)
    def get(self, request: Request, run_id: str, trajectory_id: str) -> Response:
        """Get a sampled trajectory.

        Token by token: text, log-probabilities, policy version and loss mask.
        """
        return Response(trajectories.one(run_for(caller_of(request), run_id), trajectory_id))


class AlertsView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="list_run_alerts",
        parameters=[
            OpenApiParameter("open", OpenApiTypes.BOOL, description="true: only those that hold now"),
            *PAGE_PARAMETERS,
        ],
        responses=page_of(AlertSerializer),
    )
    def get(self, request: Request, run_id: str) -> Response:
        """List the alerts of a run.

        What the metrics of the run say that somebody should look at.
        """
        found = alerts.alerts_of(run_for(caller_of(request), run_id))
        if one_of(request, "open", ["true", "false"]) == "true":
            found = found.filter(closed_at=None)
        return Response(paginate(found, read_page(request), alerts.alert_as_json))


class LogsView(ApiView):
    scopes = {"GET": "runs:read"}

    @extend_schema(
        operation_id="logs",
        parameters=[
            OpenApiParameter("job", OpenApiTypes.STR, description="a job's id; without it, the list of logs"),
            OpenApiParameter(
                "incarnation", OpenApiTypes.INT, description="restart in place; the newest when left out"
            ),
            OpenApiParameter(
                "offset", OpenApiTypes.INT, description="first byte; negative: the last so many bytes"
            ),
            OpenApiParameter(
                "limit", OpenApiTypes.INT, description="bytes; 65536 when left out, 1 MiB at most"
            ),
        ],
        responses=PolymorphicProxySerializer(
            component_name="Logs",
            serializers=[LogSerializer, LogFilesSerializer],
            resource_type_field_name=None,
        ),
    )
    def get(self, request: Request, run_id: str) -> Response:
        """Read a job's log.

        Bytes from `offset` on. Poll with `offset=next_offset` until `end`, or subscribe to `run:<id>:logs`.
        """
        run = run_for(caller_of(request), run_id)
        incarnation, offset = whole_number(request, "incarnation", lowest=0), whole_number(request, "offset")
        limit = whole_number(request, "limit", lowest=1, highest=selectors.MOST_LOG_BYTES) or 65536
        job = request.query_params.get("job", "")
        if not job:
            return Response({"data": selectors.logs(run)})
        return Response(selectors.log(run, job, incarnation=incarnation, offset=offset or 0, limit=limit))


def _wanted(request: Request) -> charts.Wanted:
    axis = one_of(request, "axis", AXES) or "step"
    join = one_of(request, "join", STITCHES)
    x_axis = one_of(request, "x_axis", AGAINST)
    if axis == "time" and (join or x_axis in ("version", "tokens")):
        name = "join" if join else "x_axis"
        raise refused(
            name,
            f"{name}={join or x_axis!r} is for axis=step: seconds begin anew with every attempt; "
            f"leave {name} out, or use x_axis=wall",
        )
    x = {"lowest": -LARGEST_X, "highest": LARGEST_X}
    after, first, last = (whole_number(request, name, **x) for name in ("after_x", "from_x", "to_x"))
    first = first if after is None else max(after + 1, -LARGEST_X if first is None else first)
    if first is not None and last is not None and last < first - (after is not None):
        raise refused("to_x", f"to_x={last} lies before the range's begin at {first}")
    return charts.Wanted(
        names=[name for name in request.query_params.get("names", "").split(",") if name],
        axis=axis,
        first=-LARGEST_X if first is None else first,
        last=LARGEST_X if last is None else last,
        limit=whole_number(request, "limit", lowest=1, highest=charts.MOST_POINTS),
        max_points=whole_number(request, "max_points", lowest=1, highest=charts.MOST_POINTS)
        or charts.DEFAULT_POINTS,
        attempt=whole_number(request, "attempt", lowest=1, highest=2**31),
        source=request.query_params.get("source", ""),
        join=cast(charts.Stitch, join),
        x_axis=cast(charts.Against, x_axis),
    )
