"""Runs, as the client offers them."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.aio.streams import stream
from oolong.client.async_primitives import sleep
from oolong.client.errors import OolongError, ServerError, Unreachable
from oolong.client.request_spec import delete, drop_none, get, page, patch, post

LONG_POLL_SECONDS = 30  # that one request waits for a status to move


class AsyncRuns(AsyncResource):
    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        tag: str | None = None,
        view: str | None = None,
        filters: Mapping[str, Sequence[str]] | None = None,
    ) -> AsyncIterator[models.Run]:
        """Newest first. `filters` are the list's other parameters: {"metric": ["reward/mean>=0.5"]}; `view` is the id
        of a saved one."""
        named = {"status": status, "kind": kind, "name": name, "tag": tag, "view": view}
        return self._pages(page("runs", models.Run, **{**(filters or {}), **drop_none(named)}))

    async def get(self, run_id: str) -> models.Run:
        return await self._send(get("runs/{}", models.Run, run_id))

    async def validate(self, spec: Mapping[str, Any], *, template: str | None = None) -> models.Validation:
        body = {"spec": dict(spec), **drop_none({"template": template})}
        return await self._send(post("runs/validate", models.Validation, body=body))

    async def plan(self, spec: Mapping[str, Any], *, template: str | None = None) -> models.Plan:
        """What it would take and where it would stand, if it were submitted now."""
        body = {"spec": dict(spec), **drop_none({"template": template})}
        return await self._send(post("runs/plan", models.Plan, body=body))

    async def simulate(
        self,
        spec: Mapping[str, Any],
        *,
        template: str | None = None,
        devices: int | None = None,
        gpu: str | None = None,
        mean_tokens: int | None = None,
    ) -> models.Simulation:
        """Speed, idle time and staleness of a simulated run, and the fastest split of `devices` slots. Service
        times are measured ones, or those of the data sheet of `gpu`."""
        options = {"template": template, "devices": devices, "gpu": gpu, "mean_tokens": mean_tokens}
        body = {"spec": dict(spec), **drop_none(options)}
        return await self._send(post("runs/simulate", models.Simulation, body=body))

    async def what_if_spec(
        self, spec: Mapping[str, Any], *, template: str | None = None
    ) -> models.SpecWhatIf:
        """When variants of the spec would start: fewer engines, another device, another pool."""
        body = {"spec": dict(spec), **drop_none({"template": template})}
        return await self._send(post("runs/what-if", models.SpecWhatIf, body=body))

    async def what_if(self, run_id: str) -> models.WhatIf:
        """When variants of a queued run would start. Raises Conflict for a run that is not QUEUED."""
        return await self._send(post("runs/{}/what-if", models.WhatIf, run_id))

    async def explain_wait(self, run_id: str) -> models.WaitExplanation:
        """Why a queued run waits. Raises Conflict for a run that is not QUEUED."""
        return await self._send(get("runs/{}/wait", models.WaitExplanation, run_id))

    async def create(
        self,
        spec: Mapping[str, Any],
        *,
        template: str | None = None,
        draft: bool = False,
        dedupe_key: str | None = None,
    ) -> models.Run:
        """Submit a run; with `draft` only keep its spec, to be edited and submitted later. With a `template` (name@2,
        or the name of a template or preset) the spec is merged over it.

        With a `dedupe_key` the same spec gives the run that is there, however often it is submitted; another spec
        raises Conflict.
        """
        named = drop_none({"template": template, "dedupe_key": dedupe_key, "draft": draft or None})
        return await self._send(post("runs", models.Run, body={"spec": dict(spec), **named}))

    async def submit(self, run_id: str) -> models.Run:
        """Queue a draft."""
        return await self._send(post("runs/{}/submit", models.Run, run_id))

    async def delete(self, run_id: str) -> None:
        """Throw a draft away."""
        await self._send(delete("runs/{}", run_id))

    async def stop(self, run_id: str, *, force: bool = False) -> models.Run:
        """Ask it to take a checkpoint and stop; with `force` it ends at once, and its slots come free on proof."""
        path = "runs/{}/force-stop" if force else "runs/{}/stop"
        return await self._send(post(path, models.Run, run_id))

    async def cancel(self, run_id: str) -> models.Run:
        """End it without a last checkpoint."""
        return await self._send(post("runs/{}/cancel", models.Run, run_id))

    async def pause(self, run_id: str) -> models.Run:
        """Ask it to take a checkpoint and give its slots back."""
        return await self._send(post("runs/{}/pause", models.Run, run_id))

    async def resume(self, run_id: str) -> models.Run:
        """Put a paused run back into the queue; it continues from its checkpoint."""
        return await self._send(post("runs/{}/resume", models.Run, run_id))

    async def retry(self, run_id: str) -> models.Run:
        """A new run that continues from the last checkpoint of a failed or stopped one."""
        return await self._send(post("runs/{}/retry", models.Run, run_id))

    async def clone(
        self, run_id: str, *, changes: Mapping[str, Any] | None = None, checkpoint: str | None = None
    ) -> models.Run:
        """A new run of the same spec with `changes` merged in; with `checkpoint` (an id or latest) a fork."""
        body = {"changes": dict(changes or {}), **drop_none({"checkpoint": checkpoint})}
        return await self._send(post("runs/{}/clone", models.Run, run_id, body=body))

    async def change(
        self,
        run_id: str,
        *,
        changes: Mapping[str, Any] | None = None,
        checkpoint: bool = False,
        evaluate: bool = False,
        **fields: Any,
    ) -> models.Run:
        """Change max staleness, concurrency, learning rate or engines of an active run, or ask it to act now.

        `fields` are those of `update`. Everything changes, or nothing.
        """
        body = {"changes": dict(changes or {}), "checkpoint": checkpoint, "evaluate": evaluate, **fields}
        return await self._send(post("runs/{}/runtime", models.Run, run_id, body=body))

    async def update(self, run_id: str, **fields: Any) -> models.Run:
        """Change name, notes, tags, or the priority of a run that waits."""
        return await self._send(patch("runs/{}", models.Run, run_id, body=dict(fields)))

    def events(self, run_id: str) -> AsyncIterator[models.RunEvent]:
        return self._pages(page("runs/{}/events", models.RunEvent, run_id))

    def alerts(self, run_id: str, *, open: bool | None = None) -> AsyncIterator[models.Alert]:
        """What the rules say or said about it; with `open`, only what holds now."""
        return self._pages(
            page("runs/{}/alerts", models.Alert, run_id, open=None if open is None else str(open).lower())
        )

    def attempts(self, run_id: str) -> AsyncIterator[models.Attempt]:
        return self._pages(get("runs/{}/attempts", models.Page[models.Attempt], run_id))

    def jobs(self, run_id: str) -> AsyncIterator[models.Job]:
        return self._pages(get("runs/{}/jobs", models.Page[models.Job], run_id))

    async def metrics(
        self,
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
    ) -> models.Metrics:
        """Series by name (all when none is given). With `limit` the first so many points after `after_x`; without it
        a series longer than `max_points` comes in that many buckets. `join="attempts"` or `"lineage"` makes one
        line of what belongs together; `x_axis="version"`, `"tokens"` or `"wall"` says where each point lies there."""
        request = get(
            "runs/{}/metrics", models.Metrics, run_id, names=",".join(names), axis=axis, after_x=after_x, limit=limit,
            from_x=from_x, to_x=to_x, max_points=max_points, join=join, x_axis=x_axis,
        )  # fmt: skip
        return await self._send(request)

    async def sparklines(self, run_ids: Sequence[str]) -> Sequence[models.Sparkline]:
        """Mean reward by train step of up to 100 runs, at most 40 points each; unknown runs are left out."""
        request = get("runs/sparklines", models.ListPage[models.Sparkline], ids=",".join(run_ids))
        return (await self._send(request)).data

    async def histograms(
        self, run_id: str, name: str, *, after_x: int | None = None, limit: int | None = None
    ) -> Sequence[models.Histogram]:
        """The newest of a name, ascending in x."""
        kind = models.ListPage[models.Histogram]
        request = get("runs/{}/histograms", kind, run_id, name=name, after_x=after_x, limit=limit)
        return (await self._send(request)).data

    async def timeline(
        self, run_id: str, *, start: float | None = None, end: float | None = None, limit: int | None = None
    ) -> models.Timeline:
        """What each engine and the trainer did in a window of unix seconds; the longest `limit` spans."""
        params: dict[str, Any] = {"from": start, "to": end, "limit": limit}
        return await self._send(get("runs/{}/timeline", models.Timeline, run_id, **params))

    def trajectories(
        self,
        run_id: str,
        *,
        step_from: int | None = None,
        step_to: int | None = None,
        reward_min: float | None = None,
        reward_max: float | None = None,
        version: int | None = None,
        span_min: int | None = None,
        row: int | None = None,
        because: str | None = None,
        finish_reason: str | None = None,
        reward_result: str | None = None,
        text: str | None = None,
    ) -> AsyncIterator[models.Trajectory]:
        """Sampled ones, newest first; `text` is looked for in prompt and completion."""
        request = page(
            "runs/{}/trajectories", models.Trajectory, run_id, step_from=step_from, step_to=step_to,
            reward_min=reward_min, reward_max=reward_max, version=version, span_min=span_min, row=row,
            because=because, finish_reason=finish_reason, reward_result=reward_result, q=text,
        )  # fmt: skip
        return self._pages(request)

    async def trajectory(self, run_id: str, trajectory_id: int) -> models.WholeTrajectory:
        """One sampled trajectory, token by token."""
        path = "runs/{}/trajectories/{}"
        return await self._send(get(path, models.WholeTrajectory, run_id, str(trajectory_id)))

    def search_logs(
        self,
        run_id: str,
        text: str = "",
        *,
        regex: bool = False,
        level: str | None = None,
        job: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[models.FoundLine]:
        """Lines with the text (case ignored) or the regular expression, of the level or worse."""
        request = page(
            "runs/{}/logs/search", models.FoundLine, run_id, q=text or None, regex="true" if regex else None,
            level=level, job=job, since=since.isoformat() if since else None,
            until=until.isoformat() if until else None,
        )  # fmt: skip
        return self._pages(request)

    async def metric_names(self, run_id: str) -> Sequence[models.MetricName]:
        """What was measured, with the last x of each."""
        request = get("runs/{}/metric-names", models.ListPage[models.MetricName], run_id)
        return (await self._send(request)).data

    async def last_value(self, run_id: str, name: str) -> float | None:
        """The newest attempt's last point of a metric; None when there is none."""
        known = [
            found
            for found in await self.metric_names(run_id)
            if found.name == name and found.last_x is not None
        ]
        for found in known:
            answer = await self.metrics(
                run_id, [name], axis=found.axis, after_x=(found.last_x or 0) - 1, limit=1
            )
            last = [series for series in answer.series if series.value]
            if last:
                return max(last, key=lambda series: (series.attempt, series.x[-1])).value[-1]
        return None

    async def documents(self, run_id: str, *, name: str | None = None) -> Sequence[models.StateSnapshot]:
        """What the run's jobs say of their state, newest words only; with `name` that one, or none yet."""
        request = get("runs/{}/state", models.ListPage[models.StateSnapshot], run_id, name=name)
        return (await self._send(request)).data

    async def document(self, run_id: str, name: str) -> models.StateSnapshot:
        return await self._send(get("runs/{}/state/{}", models.StateSnapshot, run_id, name))

    async def log_files(self, run_id: str) -> Sequence[models.LogFile]:
        return (await self._send(get("runs/{}/logs", models.ListPage[models.LogFile], run_id))).data

    async def log_part(
        self, run_id: str, file: models.LogFile, *, offset: int = 0, limit: int = 256 * 1024
    ) -> models.LogPart:
        params = {"job": file.job, "incarnation": file.incarnation, "offset": offset, "limit": limit}
        return await self._send(get("runs/{}/logs", models.LogPart, run_id, **params))

    def stream(self, run_id: str, *, after_seq: int | None = None) -> AsyncGenerator[models.Frame, None]:
        """Points, documents, events, status changes of a run as they come."""
        return stream(self._connection, f"run:{run_id}", after_seq=after_seq)

    async def wait(
        self,
        run_id: str,
        *,
        timeout_seconds: float | None = None,
        poll_seconds: float = 1.0,
        outage_seconds: float = 300.0,
        on_change: Callable[[models.Run], None] | None = None,
    ) -> models.Run:
        """The run once it has ended, whatever its end, or rests for a fault of its own.

        The server answers when the status moves; with `on_change` it is also asked for what else moves, about
        every `poll_seconds`. Raises TimeoutError; bears an outage of the server.
        """
        began = answered = time.monotonic()
        seen: models.Run | None = None
        longest = min(poll_seconds, LONG_POLL_SECONDS) if on_change is not None else LONG_POLL_SECONDS
        while True:
            asked = time.monotonic()
            left = longest if timeout_seconds is None else min(longest, began + timeout_seconds - asked)
            try:
                run = await self._look(run_id, seen, left)
                answered = time.monotonic()
            except (Unreachable, ServerError) as error:
                if time.monotonic() - answered > outage_seconds:
                    raise
                run = None
                last_error: OolongError = error
            if run is not None:
                if run != seen and on_change is not None:
                    on_change(run)
                seen = run
                if run.ended or run.needs_attention:
                    return run
            now = time.monotonic()
            if timeout_seconds is not None and now - began >= timeout_seconds:
                state = f"is {seen.status}" if seen is not None else f"could not be asked: {last_error}"
                raise TimeoutError(f"run {run_id} {state} after {timeout_seconds:g} s")
            if now - asked < poll_seconds:  # the server did not wait
                await sleep(poll_seconds - (now - asked))

    async def _look(self, run_id: str, seen: models.Run | None, seconds: float) -> models.Run:
        if seen is None or seconds < 1:
            return await self.get(run_id)
        return await self._send(get("runs/{}", models.Run, run_id, wait=int(seconds), seen=seen.status))
