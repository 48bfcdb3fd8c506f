"""The timeline of a run: spans of its jobs, read by window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from control_plane.runs.models import Job
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import OutboxFile, RunSpan
from oolong.contracts.telemetry import Span, Spans
from tests.unit.control_plane.telemetry.world import World, build_world, encode

AT = 1_700_000_000.0


@pytest.fixture
def world(db: None) -> World:
    return build_world()


@pytest.fixture
def read(world: World, client: Client) -> Callable[..., Any]:
    token = world.token()
    return lambda **query: client.get(
        f"/api/v1/runs/{world.run.pk}/timeline", query, headers={"Authorization": f"Bearer {token}"}
    )


def ship(job: Job, *lines: Spans) -> None:
    outbox.ingest_outbox(job.pk, "main-0.jsonl", offset=0, body=encode(*lines))


def span(start: float, end: float, **fields: Any) -> Span:
    return Span(**{"kind": "generate", "version": 1, "start": AT + start, "end": AT + end, **fields})


def test_a_window_has_the_spans_that_touch_it(world: World, read: Callable[..., Any]) -> None:
    generation = span(1, 4, group_id="0-1-0", member=2, outcome="interrupted")
    ship(world.rollout, Spans(at=AT, spans=[generation, span(4, 5, kind="load")], sampled_groups=2))
    ship(world.trainer, Spans(at=AT, spans=[span(8, 9, kind="train", version=3)]))
    whole = read().json()
    assert whole["lanes"] == ["rollout-0", "trainer"]
    assert (whole["start"], whole["end"]) == (AT + 1, AT + 9)
    assert (whole["left_out"], whole["sampled_groups"]) == (0, 2)
    assert [(s["lane"], s["kind"]) for s in whole["data"]] == [
        ("rollout-0", "generate"), ("rollout-0", "load"), ("trainer", "train"),
    ]  # fmt: skip
    assert whole["data"][0] == {
        "lane": "rollout-0", "attempt": 1, "kind": "generate", "start": AT + 1, "end": AT + 4, "version": 1,
        "group_id": "0-1-0", "member": 2, "outcome": "interrupted",
    }  # fmt: skip
    window = read(**{"from": AT + 3, "to": AT + 4.5}).json()
    assert [s["kind"] for s in window["data"]] == ["generate", "load"]
    assert window["end"] == AT + 9
    assert [s["kind"] for s in read(**{"from": AT + 6}).json()["data"]] == ["train"]


def test_the_shortest_spans_are_left_out_and_counted(world: World, read: Callable[..., Any]) -> None:
    ship(world.rollout, Spans(at=AT, spans=[span(n, n + 1 + n % 5) for n in range(20)]))
    found = read(limit=8).json()
    assert found["left_out"] == 12
    lengths = [s["end"] - s["start"] for s in found["data"]]
    assert sorted(lengths) == [4, 4, 4, 4, 5, 5, 5, 5]
    starts = [s["start"] for s in found["data"]]
    assert starts == sorted(starts)


def test_rollouts_do_not_displace_what_the_jobs_do(world: World, read: Callable[..., Any]) -> None:
    rollouts = [span(n, n + 5, group_id=f"0-{n}-0", member=0) for n in range(20)]
    ship(world.rollout, Spans(at=AT, spans=[*rollouts, span(0, 0.1, kind="load")]))
    found = read(limit=4).json()
    assert found["left_out"] == 17
    assert sorted(s["kind"] for s in found["data"]) == ["generate", "generate", "generate", "load"]


def test_a_run_without_spans_has_an_empty_timeline(world: World, read: Callable[..., Any]) -> None:
    found = read().json()
    assert (found["start"], found["end"], found["data"]) == (None, None, [])


def test_a_window_that_ends_before_it_begins_is_rejected(world: World, read: Callable[..., Any]) -> None:
    answer = read(**{"from": 5, "to": 4})
    assert answer.status_code == 422 and "to=4.0" in answer.content.decode()


@pytest.mark.parametrize(
    "bad",
    [
        span(5, 4),
        span(0, 1e12),
        span(0, 1, version=-2),
        span(0, 1, version=2**60),
        span(0, 1, member=2**40),
        span(0, 1, group_id="g" * 121),
    ],
)
def test_an_invalid_span_is_a_bad_line(world: World, bad: Span) -> None:
    ship(world.rollout, Spans(at=AT, spans=[bad]), Spans(at=AT, spans=[span(0, 1)]))
    assert OutboxFile.objects.get().bad_lines == 1
    assert RunSpan.objects.count() == 1


def test_a_batch_that_is_sent_twice_is_stored_once(world: World) -> None:
    for _ in range(2):
        ship(world.rollout, Spans(at=AT, spans=[span(0, 1)]))
    assert RunSpan.objects.count() == 1
    world.run.delete()
    assert not RunSpan.objects.exists()
