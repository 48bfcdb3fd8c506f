"""Spans of the trainer for the run's timeline: its phases, merged into what a reader tells apart."""

from __future__ import annotations

from collections.abc import Iterable

from oolong.contracts.telemetry import Span, SpanKind

_KINDS: dict[str, SpanKind] = {
    "wait_batch": "wait",
    "gather": "publish",
    "write": "publish",
    "announce": "publish",
    "checkpoint": "checkpoint",
}  # every other phase is part of training


def trainer_spans(laps: Iterable[tuple[str, float, float]], *, version: int) -> list[Span]:
    """One span per stretch of adjacent laps (phase, start, end) of one kind, for the step that produces `version`."""
    spans: list[Span] = []
    for phase, start, end in laps:
        kind = _KINDS.get(phase, "train")
        if end <= start:
            continue
        if spans and spans[-1].kind == kind:
            start = spans.pop().start
        spans.append(Span(kind=kind, start=start, end=end, version=version))
    return spans
