"""Read endpoints of telemetry: series, histograms, state, trajectories, alerts and logs."""

from __future__ import annotations

from typing import cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, PolymorphicProxySerializer, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts.identity.caller import caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.query_params import invalid_parameter
from control_plane.core.api.rendering import QuickJSONRenderer
from control_plane.core.api.schema import NONEMPTY
from control_plane.runs.selectors import run_for
from control_plane.telemetry.alerts import alerts
from control_plane.telemetry.ingest.lines import MAX_X
from control_plane.telemetry.query import charts, selectors, sparklines, timeline, trajectories
from control_plane.telemetry.query.query_params import id_list, number, one_of, short_text, whole_number
from control_plane.telemetry.query.serializers import (
    AlertSerializer,
    HistogramsSerializer,
    LogFilesSerializer,
    LogSerializer,
    MetricDefinitionsSerializer,
    MetricNamesSerializer,
    MetricsSerializer,
    SparklinesSerializer,
    StateSnapshotSerializer,
    StateSnapshotsSerializer,
    TimelineSerializer,
    TrajectorySerializer,
    WholeTrajectorySerializer,
)
from oolong.contracts.metrics import METRICS

AXES, JOINS, X_AXES = ["step", "time"], ["attempts", "lineage"], ["version", "tokens", "wall"]
FINISH_REASONS = ["stop", "length", "abort"]
SAMPLE_REASONS = ["group", "highest_reward", "lowest_reward", "longest", "widest_span"]


class MetricDefinitionsView(ApiView):
    scopes = {"GET": None}

    @endpoint("metric_definitions", returns=MetricDefinitionsSerializer)
    def get(self, request: Request) -> object:
        """List metric definitions.

        Every metric that runs report: name, unit, meaning and direction.
        """
        return {"data": list(METRICS.values())}


class MetricNamesView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("metric_names", returns=MetricNamesSerializer)
    def get(self, request: Request, run_id: str) -> object:
        """List the metric names of a run.

        Which metrics the run has reported, with their newest step.
        """
        run = run_for(caller_of(request), run_id)
        return {"data": selectors.metric_names(run)}


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
                enum=JOINS,
                description="one line per name and source: attempts joined, or with lineage also the runs whose "
                "checkpoints this one went on from; step axis only",
            ),
            OpenApiParameter(
                "x_axis",
                OpenApiTypes.STR,
                enum=X_AXES,
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
        return Response(charts.metrics(run, _chart_query(request)))


class SparklinesView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint(
        "sparklines",
        returns=SparklinesSerializer,
        parameters=[
            OpenApiParameter(
                "ids",
                NONEMPTY,
                required=True,
                description=f"ids of runs, comma-separated, at most {sparklines.MAX_RUNS}",
            )
        ],
    )
    def get(self, request: Request) -> object:
        """Read the reward of many runs.

        Mean reward by train step, at most 40 points a run, in the order of `ids`. Runs that do not exist or
        that you do not see are left out.
        """
        found = sparklines.rewards(caller_of(request), id_list(request, "ids", most=sparklines.MAX_RUNS))
        return {"data": found}


class HistogramsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint(
        "histograms",
        returns=HistogramsSerializer,
        parameters=[
            OpenApiParameter("name", NONEMPTY, required=True),
            OpenApiParameter("after_x", OpenApiTypes.INT),
            OpenApiParameter("limit", OpenApiTypes.INT, description="the newest so many; 200 when left out"),
        ],
    )
    def get(self, request: Request, run_id: str) -> object:
        """Get histograms of a run.

        Distributions such as staleness and response length, by step.
        """
        run = run_for(caller_of(request), run_id)
        name = request.query_params.get("name", "")
        if not name:
            raise invalid_parameter("name", "name= is missing: staleness/consumed_tokens, say")
        limit = whole_number(request, "limit", lowest=1, highest=2000) or 200
        found = selectors.histograms(run, name=name, after_x=whole_number(request, "after_x"), limit=limit)
        return {"data": found}


class StatesView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint(
        "documents",
        returns=StateSnapshotsSerializer,
        parameters=[
            OpenApiParameter(
                "name", OpenApiTypes.STR, description="only this one; none where nobody wrote it"
            )
        ],
    )
    def get(self, request: Request, run_id: str) -> object:
        """List the state snapshots of a run.

        The newest snapshot of each kind, such as the ledger or the engines.
        """
        run = run_for(caller_of(request), run_id)
        found = selectors.state_snapshots(run, name=request.query_params.get("name"))
        return {"data": found}


class StateView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint("state", returns=StateSnapshotSerializer)
    def get(self, request: Request, run_id: str, name: str) -> object:
        """Get a state snapshot of a run.

        The newest snapshot of this name.
        """
        return selectors.state_snapshot(run_for(caller_of(request), run_id), name)


class TrajectoriesView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint(
        "list_trajectories",
        page=TrajectorySerializer,
        parameters=[
            OpenApiParameter("step_from", OpenApiTypes.INT, description="train step, inclusive"),
            OpenApiParameter("step_to", OpenApiTypes.INT),
            OpenApiParameter("reward_min", OpenApiTypes.FLOAT, description="inclusive"),
            OpenApiParameter("reward_max", OpenApiTypes.FLOAT),
            OpenApiParameter(
                "span_min",
                OpenApiTypes.INT,
                description="versions from its oldest token to its newest, at least",
            ),
            OpenApiParameter(
                "version", OpenApiTypes.INT, description="within its oldest and newest policy version"
            ),
            OpenApiParameter("row", OpenApiTypes.INT, description="of the dataset"),
            OpenApiParameter("attempt", OpenApiTypes.INT),
            OpenApiParameter("group", OpenApiTypes.STR, description="a group's id"),
            OpenApiParameter(
                "because", OpenApiTypes.STR, enum=SAMPLE_REASONS, description="why it was sampled"
            ),
            OpenApiParameter(
                "finish_reason", OpenApiTypes.STR, enum=FINISH_REASONS, description="how its last turn ended"
            ),
            OpenApiParameter(
                "reward_result", OpenApiTypes.STR, description="as the reward function named it"
            ),
            OpenApiParameter(
                "q", OpenApiTypes.STR, description="text in the prompt or the completion, case ignored"
            ),
        ],
    )
    def get(self, request: Request, run_id: str) -> object:
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
            version=whole_number(request, "version", lowest=0),
            row=whole_number(request, "row", lowest=0),
            attempt=whole_number(request, "attempt", lowest=1, highest=2**31 - 1),
            group=request.query_params.get("group", ""),
            because=one_of(request, "because", SAMPLE_REASONS),
            finish_reason=one_of(request, "finish_reason", FINISH_REASONS),
            reward_result=short_text(request, "reward_result", most=200),
            text=short_text(request, "q", most=500),
        )
        return trajectories.query(run, wanted)


class TrajectoryView(ApiView):
    scopes = {"GET": "runs:read"}
    renderer_classes = [QuickJSONRenderer]

    @extend_schema(operation_id="get_trajectory", responses=WholeTrajectorySerializer)
    def get(self, request: Request, run_id: str, trajectory_id: str) -> Response:
        """Get a sampled trajectory.

        Token by token: text, log-probabilities, policy version and loss mask.
        """
        return Response(trajectories.get(run_for(caller_of(request), run_id), trajectory_id))


class TimelineView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint(
        "timeline",
        returns=TimelineSerializer,
        parameters=[
            OpenApiParameter("from", OpenApiTypes.FLOAT, description="begin of the window, unix seconds"),
            OpenApiParameter("to", OpenApiTypes.FLOAT, description="end of the window, unix seconds"),
            OpenApiParameter(
                "limit",
                OpenApiTypes.INT,
                description=f"{timeline.DEFAULT_SPANS} when left out, at most {timeline.MAX_SPANS}",
            ),
        ],
    )
    def get(self, request: Request, run_id: str) -> object:
        """Read the timeline of a run.

        What each engine and the trainer did in a window: generation, loads, rewards, waits and train steps.
        """
        run = run_for(caller_of(request), run_id)
        first, last = number(request, "from"), number(request, "to")
        if first is not None and last is not None and last < first:
            raise invalid_parameter("to", f"to={last} lies before the window's begin at {first}")
        limit = whole_number(request, "limit", lowest=1, highest=timeline.MAX_SPANS)
        return timeline.read(run, first=first, last=last, limit=limit or timeline.DEFAULT_SPANS)


class AlertsView(ApiView):
    scopes = {"GET": "runs:read"}

    @endpoint(
        "list_run_alerts",
        page=AlertSerializer,
        parameters=[
            OpenApiParameter("open", OpenApiTypes.BOOL, description="true: only those that hold now")
        ],
    )
    def get(self, request: Request, run_id: str) -> object:
        """List the alerts of a run.

        What the metrics of the run say that somebody should look at.
        """
        found = alerts.alerts_of(run_for(caller_of(request), run_id))
        if one_of(request, "open", ["true", "false"]) == "true":
            found = found.filter(closed_at=None)
        return found


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
        limit = whole_number(request, "limit", lowest=1, highest=selectors.MAX_LOG_BYTES) or 65536
        job = request.query_params.get("job", "")
        if not job:
            return Response(LogFilesSerializer.render({"data": selectors.logs(run)}))
        found = selectors.log(run, job, incarnation=incarnation, offset=offset or 0, limit=limit)
        return Response(LogSerializer.render(found))


def _chart_query(request: Request) -> charts.ChartQuery:
    axis = one_of(request, "axis", AXES) or "step"
    join = one_of(request, "join", JOINS)
    x_axis = one_of(request, "x_axis", X_AXES)
    if axis == "time" and (join or x_axis in ("version", "tokens")):
        name = "join" if join else "x_axis"
        raise invalid_parameter(
            name,
            f"{name}={join or x_axis!r} is for axis=step: seconds begin at 0 with every attempt; "
            f"leave {name} out, or use x_axis=wall",
        )
    x = {"lowest": -MAX_X, "highest": MAX_X}
    after, first, last = (whole_number(request, name, **x) for name in ("after_x", "from_x", "to_x"))
    first = first if after is None else max(after + 1, -MAX_X if first is None else first)
    if first is not None and last is not None and last < first - (after is not None):
        raise invalid_parameter("to_x", f"to_x={last} lies before the range's begin at {first}")
    return charts.ChartQuery(
        names=[name for name in request.query_params.get("names", "").split(",") if name],
        axis=axis,
        first=-MAX_X if first is None else first,
        last=MAX_X if last is None else last,
        limit=whole_number(request, "limit", lowest=1, highest=charts.MAX_POINTS),
        max_points=whole_number(request, "max_points", lowest=1, highest=charts.MAX_POINTS)
        or charts.DEFAULT_POINTS,
        attempt=whole_number(request, "attempt", lowest=1, highest=2**31),
        source=request.query_params.get("source", ""),
        join=cast(charts.Join, join),
        x_axis=cast(charts.XAxis, x_axis),
    )
