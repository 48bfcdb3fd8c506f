"""The reward service's telemetry: latencies, errors, sandbox capabilities, a final summary."""

from __future__ import annotations

import math
from typing import Any

from gpu_agents.job import Job
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import RewardService
from oolong.contracts.telemetry import Outbox, Points, StateSnapshot, Summary

STATE_NAME = "reward_service"


class RewardTelemetry:
    def __init__(self, job: Job, outbox: Outbox, service: RewardService, sandboxes: Sandboxes) -> None:
        self._job = job
        self._outbox = outbox
        self._service = service
        self._sandboxes = sandboxes
        self._capabilities: dict[str, Any] = {}
        self._last_x = -1

    async def publish_capabilities(self) -> None:
        """Publish the sandbox's capabilities once they are known."""
        self._capabilities = (await self._sandboxes.capabilities()).as_json()
        self._write_state()

    def publish(self, *, now: float, closing: bool = False) -> None:
        x = self._job.seconds_since_start(now)
        if x <= self._last_x:  # a second point at one x would be a conflict
            if not closing:
                return
            x = self._last_x + 1
        self._last_x = x
        values = values_of(self._service, self._sandboxes)
        self._outbox.write(Points(axis="time", x=x, values=values))
        self._write_state()

    def close(self) -> None:
        self._outbox.write(Summary(name="reward", value=self._service.state()))
        self._outbox.close()

    def _write_state(self) -> None:
        value = {"capabilities": self._capabilities, **self._service.state()}
        self._outbox.write(StateSnapshot(name=STATE_NAME, value=value))


def values_of(service: RewardService, sandboxes: Sandboxes) -> dict[str, float]:
    """The reward/ and sandbox/ metrics; without scores there are no latencies."""
    counts = service.counts
    values = {
        "reward/scored": float(counts.scored),
        "reward/verifier_errors": float(counts.failed["verifier_error"]),
        "reward/sandbox_errors": float(counts.failed["sandbox_error"]),
        "sandbox/runs": float(sandboxes.runs),
        "sandbox/tests": float(sandboxes.tests.total()),
        "sandbox/timeouts": float(sandboxes.timeouts),
    }
    if counts.latencies:
        values["reward/latency_p50_seconds"] = percentile(list(counts.latencies), 0.5)
        values["reward/latency_p95_seconds"] = percentile(list(counts.latencies), 0.95)
        values["reward/forgeable_frac"] = counts.forgeable / counts.scored
    return values | remote_values(service.remote)


def remote_values(remote: RemoteCounts) -> dict[str, float]:
    """Those of rewards that ask a service; none before the first request."""
    if not remote.requests:
        return {}
    values = {
        "reward/remote_requests": float(remote.requests),
        "reward/remote_retries": float(remote.retries),
        "reward/remote_failures": float(remote.failures),
        "reward/judge_input_tokens": float(remote.judge_input_tokens),
        "reward/judge_output_tokens": float(remote.judge_output_tokens),
        "reward/judge_cache_hits": float(remote.judge_cache_hits),
        "reward/judge_unparsable": float(remote.unparsable),
    }
    if latencies := list(remote.latencies):
        values["reward/remote_latency_p50_seconds"] = percentile(latencies, 0.5)
        values["reward/remote_latency_p95_seconds"] = percentile(latencies, 0.95)
    return values


def percentile(values: list[float], fraction: float) -> float:
    """The smallest value that at least the fraction of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(fraction * len(ordered)) - 1)]
