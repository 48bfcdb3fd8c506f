"""What a run measured and wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import (
    FoundLine,
    Histogram,
    ListPage,
    LogFile,
    LogPart,
    MetricName,
    Metrics,
    Page,
    Sparkline,
    StateSnapshot,
    Timeline,
    Trajectory,
    WholeTrajectory,
)


def metrics(
    run_id: str,
    names: Sequence[str],
    *,
    axis: str | None = None,
    after_x: int | None = None,
    limit: int | None = None,
    from_x: int | None = None,
    to_x: int | None = None,
    max_points: int | None = None,
    join: str | None = None,
    x_axis: str | None = None,
) -> RequestSpec[Metrics]:
    params = {
        "names": ",".join(names), "axis": axis, "after_x": after_x, "limit": limit, "from_x": from_x, "to_x": to_x,
        "max_points": max_points, "join": join, "x_axis": x_axis,
    }  # fmt: skip
    return request_spec.get("runs/{}/metrics", Metrics, run_id, **params)


def sparklines(run_ids: Sequence[str]) -> RequestSpec[ListPage[Sparkline]]:
    return request_spec.get("runs/sparklines", ListPage[Sparkline], ids=",".join(run_ids))


def histograms(
    run_id: str, name: str, *, after_x: int | None = None, limit: int | None = None
) -> RequestSpec[ListPage[Histogram]]:
    return request_spec.get(
        "runs/{}/histograms", ListPage[Histogram], run_id, name=name, after_x=after_x, limit=limit
    )


def timeline(
    run_id: str, *, start: float | None = None, end: float | None = None, limit: int | None = None
) -> RequestSpec[Timeline]:
    params: dict[str, Any] = {"from": start, "to": end, "limit": limit}
    return request_spec.get("runs/{}/timeline", Timeline, run_id, **params)


def trajectories(run_id: str, **filters: Any) -> RequestSpec[Page[Trajectory]]:
    return request_spec.page("runs/{}/trajectories", Trajectory, run_id, **filters)


def trajectory(run_id: str, trajectory_id: str) -> RequestSpec[WholeTrajectory]:
    return request_spec.get("runs/{}/trajectories/{}", WholeTrajectory, run_id, trajectory_id)


def search_logs(run_id: str, **filters: Any) -> RequestSpec[Page[FoundLine]]:
    return request_spec.page("runs/{}/logs/search", FoundLine, run_id, **filters)


def metric_names(run_id: str) -> RequestSpec[ListPage[MetricName]]:
    return request_spec.get("runs/{}/metric-names", ListPage[MetricName], run_id)


def documents(run_id: str, *, name: str | None = None) -> RequestSpec[ListPage[StateSnapshot]]:
    return request_spec.get("runs/{}/state", ListPage[StateSnapshot], run_id, name=name)


def document(run_id: str, name: str) -> RequestSpec[StateSnapshot]:
    return request_spec.get("runs/{}/state/{}", StateSnapshot, run_id, name)


def log_files(run_id: str) -> RequestSpec[ListPage[LogFile]]:
    return request_spec.get("runs/{}/logs", ListPage[LogFile], run_id)


def log_part(run_id: str, job: str, incarnation: int, offset: int, limit: int) -> RequestSpec[LogPart]:
    params = {"job": job, "incarnation": incarnation, "offset": offset, "limit": limit}
    return request_spec.get("runs/{}/logs", LogPart, run_id, **params)
