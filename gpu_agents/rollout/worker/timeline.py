"""Spans of one engine for the run's timeline: generation, loads, waits, and the rewards of its rollouts."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from oolong.contracts.telemetry import Span, SpanKind, SpanOutcome, Spans

MAX_SPANS = 128  # per report: more groups than fit are sampled
SHORTEST_WAIT_SECONDS = 0.05


@dataclass(kw_only=True)
class Segment:
    """A request in the engine. It is one span per stretch between two loads."""

    group_id: str  # empty: not of a group, so it keeps the engine busy and is not recorded
    member: int
    since: float | None  # None while the engine is paused
    outcome: SpanOutcome = "lost"


class TimelineRecorder:
    """Records spans in memory; `take` returns those since the last call.

    Groups are sampled when there are too many spans: of `sampled_groups` groups (a power of two) the one with the
    smallest SHA-256 is recorded, so all spans of a group are recorded or none. Trajectory samples prefer the same
    groups.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._unix = time.time() - clock()  # read once: a step of the wall clock must not make spans overlap
        self._spans: list[Span] = []
        self._sampled_groups = 1
        self._segments: list[Segment] = []
        self._version = -1
        self._paused_at: float | None = None
        self._idle_since: float | None = None
        self._serves = False

    def now(self) -> float:
        """Unix seconds."""
        return self._clock() + self._unix

    # --- the engine ---------------------------------------------------------------------------------------

    def pause(self) -> None:
        """The engine stops generating, to load weights."""
        if self._paused_at is not None:
            return
        now = self._paused_at = self.now()
        self._end_wait(now)
        for segment in self._segments:
            self._end_segment(segment, now, "interrupted")

    def open(self, version: int) -> None:
        """The engine generates from now on, with this version."""
        now = self.now()
        self._version = version
        if self._paused_at is not None:
            self._add(Span(kind="load", start=self._paused_at, end=now, version=version))
            self._paused_at = None
        for segment in self._segments:
            if segment.since is None:
                segment.since = now
        self._serves = True
        if not self._segments and self._idle_since is None:
            self._idle_since = now

    def close(self) -> None:
        """The engine has ended."""
        self._end_wait(self.now())
        self._paused_at = None
        self._serves = False

    # --- its requests -------------------------------------------------------------------------------------

    def begin(self, group_id: str = "", member: int = -1) -> Segment:
        now = self.now()
        self._end_wait(now)
        since = None if self._paused_at is not None else now
        segment = Segment(group_id=group_id, member=member, since=since)
        self._segments.append(segment)
        return segment

    def end(self, segment: Segment) -> None:
        now = self.now()
        self._segments.remove(segment)
        self._end_segment(segment, now, segment.outcome)
        if self._serves and not self._segments and self._paused_at is None:
            self._idle_since = now

    def add(
        self, kind: SpanKind, *, start: float, version: int, group_id: str = "", member: int = -1
    ) -> None:
        """A span that ends now."""
        self._add(
            Span(kind=kind, start=start, end=self.now(), version=version, group_id=group_id, member=member)
        )

    def take(self) -> Spans | None:
        if not self._spans:
            return None
        taken = Spans(spans=self._spans, sampled_groups=self._sampled_groups)
        if len(self._spans) < MAX_SPANS // 2:
            self._sampled_groups = max(1, self._sampled_groups // 2)
        self._spans = []
        return taken

    # --- inside -------------------------------------------------------------------------------------------

    def _end_segment(self, segment: Segment, now: float, outcome: SpanOutcome) -> None:
        if segment.since is None:
            return
        start, segment.since = segment.since, None
        if segment.group_id:
            self._add(
                Span(
                    kind="generate",
                    start=start,
                    end=now,
                    version=self._version,
                    group_id=segment.group_id,
                    member=segment.member,
                    outcome=outcome,
                )
            )

    def _end_wait(self, now: float) -> None:
        if self._idle_since is not None and now - self._idle_since >= SHORTEST_WAIT_SECONDS:
            self._add(Span(kind="wait", start=self._idle_since, end=now, version=self._version))
        self._idle_since = None

    def _add(self, span: Span) -> None:
        if not is_sampled(span.group_id, self._sampled_groups):
            return
        while len(self._spans) >= MAX_SPANS:
            if all(not kept.group_id for kept in self._spans):
                return  # nothing reports them: the engine of an evaluator
            self._sampled_groups *= 2
            self._spans = [kept for kept in self._spans if is_sampled(kept.group_id, self._sampled_groups)]
        if is_sampled(span.group_id, self._sampled_groups):
            self._spans.append(span)


def is_sampled(group_id: str, sampled_groups: int) -> bool:
    """Whether the group is the one of `sampled_groups` that is recorded. Spans without a group always are."""
    if not group_id or sampled_groups == 1:
        return True
    return int.from_bytes(hashlib.sha256(group_id.encode()).digest()[:8]) * sampled_groups < 2**64
