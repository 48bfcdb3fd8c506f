from __future__ import annotations

from gpu_agents.rollout.worker.timeline import MAX_SPANS, TimelineRecorder, is_sampled
from oolong.contracts.telemetry import Span


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def recorder(clock: Clock) -> TimelineRecorder:
    """Its unix time begins at the clock's zero."""
    timeline = TimelineRecorder(clock)
    timeline._unix = 0.0
    return timeline


def test_a_load_splits_a_generation_into_a_span_per_version() -> None:
    clock = Clock()
    timeline = recorder(clock)
    timeline.pause()
    clock.now = 101.0
    timeline.open(0)
    clock.now = 103.0
    segment = timeline.begin("g", 2)
    clock.now = 104.0
    timeline.pause()
    clock.now = 105.0
    timeline.open(1)
    clock.now = 107.0
    segment.outcome = "finished"
    timeline.end(segment)
    clock.now = 108.0
    timeline.close()
    taken = timeline.take()
    assert taken is not None and taken.sampled_groups == 1
    assert taken.spans == [
        Span(kind="load", start=100.0, end=101.0, version=0),
        Span(kind="wait", start=101.0, end=103.0, version=0),
        Span(
            kind="generate", start=103.0, end=104.0, version=0, group_id="g", member=2, outcome="interrupted"
        ),
        Span(kind="load", start=104.0, end=105.0, version=1),
        Span(kind="generate", start=105.0, end=107.0, version=1, group_id="g", member=2, outcome="finished"),
        Span(kind="wait", start=107.0, end=108.0, version=1),
    ]
    assert timeline.take() is None


def test_a_request_sent_during_a_load_generates_after_it() -> None:
    clock = Clock()
    timeline = recorder(clock)
    timeline.open(0)
    timeline.pause()
    segment = timeline.begin("g", 0)
    clock.now = 102.0
    timeline.open(1)
    clock.now = 103.0
    timeline.end(segment)
    taken = timeline.take()
    assert taken is not None
    assert [(s.kind, s.start, s.version) for s in taken.spans] == [("load", 100.0, 1), ("generate", 102.0, 1)]


def test_the_boot_of_the_next_engine_is_no_wait() -> None:
    clock = Clock()
    timeline = recorder(clock)
    timeline.open(0)
    segment = timeline.begin("g", 0)
    clock.now = 101.0
    timeline.close()
    timeline.end(segment)
    clock.now = 160.0
    timeline.pause()
    timeline.open(1)
    taken = timeline.take()
    assert taken is not None
    assert [(s.kind, s.outcome) for s in taken.spans] == [("generate", "lost"), ("load", "")]


def test_too_many_groups_are_sampled_whole_and_the_rate_is_stated() -> None:
    clock = Clock()
    timeline = recorder(clock)
    timeline.open(0)
    groups = [f"0-{n}-0" for n in range(200)]
    for group in groups:
        for member in range(4):
            segment = timeline.begin(group, member)
            clock.now += 0.01
            timeline.end(segment)
    taken = timeline.take()
    assert taken is not None
    assert taken.sampled_groups > 1
    assert len(taken.spans) <= MAX_SPANS
    recorded = {span.group_id for span in taken.spans}
    assert recorded == {group for group in groups if is_sampled(group, taken.sampled_groups)}
    assert len(taken.spans) == 4 * len(recorded)


def test_memory_stays_bounded_when_nothing_reports() -> None:
    clock = Clock()
    timeline = recorder(clock)
    for version in range(10 * MAX_SPANS):
        timeline.pause()
        clock.now += 1.0
        timeline.open(version)
    taken = timeline.take()
    assert taken is not None and len(taken.spans) == MAX_SPANS
