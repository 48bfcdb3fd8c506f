"""What is measured of the services that rewards ask."""

from __future__ import annotations

from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.telemetry import remote_values
from oolong.contracts.metrics import METRICS


def test_nothing_is_reported_before_the_first_request() -> None:
    assert remote_values(RemoteCounts()) == {}


def test_requests_faults_latencies_and_tokens_are_metrics() -> None:
    counts = RemoteCounts(
        requests=7,
        retries=2,
        failures=1,
        judge_input_tokens=90,
        judge_output_tokens=8,
        judge_cache_hits=4,
        unparsable=1,
    )
    counts.latencies.extend([0.1, 0.2, 0.3, 9.0])
    values = remote_values(counts)
    assert values == {
        "reward/remote_requests": 7, "reward/remote_retries": 2, "reward/remote_failures": 1,
        "reward/judge_input_tokens": 90, "reward/judge_output_tokens": 8, "reward/judge_cache_hits": 4,
        "reward/judge_unparsable": 1, "reward/remote_latency_p50_seconds": 0.2,
        "reward/remote_latency_p95_seconds": 9.0,
    }  # fmt: skip
    assert values.keys() <= METRICS.keys()
