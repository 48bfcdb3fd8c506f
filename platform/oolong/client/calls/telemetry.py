"""What a run measured and wrote."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.calls import call
from oolong.client.calls.call import Call
from oolong.client.models import Document, Listing, LogFile, LogPart, MetricName, Metrics, Page, Trajectory


def metrics(
    run_id: str,
    names: Sequence[str],
    *,
    axis: str | None = None,
    after_x: int | None = None,
    limit: int | None = None,
) -> Call[Metrics]:
    params = {"names": ",".join(names), "axis": axis, "after_x": after_x, "limit": limit}
    return call.get("runs/{}/metrics", Metrics, run_id, **params)


def metric_names(run_id: str) -> Call[Listing[MetricName]]:
    return call.get("runs/{}/metric-names", Listing[MetricName], run_id)


def document(run_id: str, name: str) -> Call[Document]:
    return call.get("runs/{}/documents/{}", Document, run_id, name)


def trajectories(run_id: str) -> Call[Page[Trajectory]]:
    return call.page("runs/{}/trajectories", Trajectory, run_id)


def log_files(run_id: str) -> Call[Listing[LogFile]]:
    return call.get("runs/{}/logs", Listing[LogFile], run_id)


def log_part(run_id: str, job: str, incarnation: int, offset: int, limit: int) -> Call[LogPart]:
    params = {"job": job, "incarnation": incarnation, "offset": offset, "limit": limit}
    return call.get("runs/{}/logs", LogPart, run_id, **params)
