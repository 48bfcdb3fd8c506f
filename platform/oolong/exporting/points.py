"""Points of an export: by train step, attempts joined, without duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from oolong.client.models import Metrics, Run

PAGE = 5000


@dataclass(frozen=True, slots=True)
class Point:
    tag: str  # the metric's name; with "/source" unless the trainer measured it
    step: int
    value: float
    at: float  # unix seconds


class State(msgspec.Struct):
    """Progress of an export, stored next to its output."""

    run_id: str
    attempt: int  # the run's attempt when it was written
    reached: dict[str, int] = msgspec.field(default_factory=dict)  # tag -> last step
    files: list[str] = msgspec.field(default_factory=list)  # written so far, by name


class Target(Protocol):
    """Destination of points. Receives all points of a step together, in ascending steps."""

    def write(self, step: int, points: Sequence[Point]) -> None: ...


class Runs(Protocol):
    """The part of the client that an export uses."""

    def get(self, run_id: str) -> Run: ...

    def metrics(
        self, run_id: str, names: Sequence[str], *, axis: str | None = None, after_x: int | None = None,
        limit: int | None = None, join: str | None = None,
    ) -> Metrics: ...  # fmt: skip


@dataclass
class Exported:
    points: int = 0
    left_out: int = 0  # not finite: no tool draws them
    steps: set[int] = field(default_factory=set)


def export(runs: Runs, run_id: str, state: State, target: Target) -> Exported:
    """Send every point after `state.reached` to the target and advance the state."""
    done = Exported()
    by_step: dict[int, list[Point]] = {}
    for point in read_points(runs, run_id, state, done):
        by_step.setdefault(point.step, []).append(point)
    for step in sorted(by_step):
        target.write(step, sorted(by_step[step], key=lambda point: point.tag))
        done.points += len(by_step[step])
        done.steps.add(step)
        for point in by_step[step]:
            state.reached[point.tag] = max(step, state.reached.get(point.tag, -1))
    return done


def read_points(runs: Runs, run_id: str, state: State, done: Exported) -> Iterator[Point]:
    after: int | None = None
    seen = dict(state.reached)
    while True:
        answer = runs.metrics(run_id, [], axis="step", after_x=after, limit=PAGE, join="attempts")
        full = [series for series in answer.series if len(series.x) >= PAGE]
        for series in answer.series:
            tag = tag_of(series.name, series.source)
            for x, value, at in zip(series.x, series.value, series.at, strict=True):
                if int(x) <= seen.get(tag, -1):
                    continue
                seen[tag] = int(x)
                if value is None:
                    done.left_out += 1
                else:
                    yield Point(tag, int(x), value, at)
        if not full:
            return
        after = int(min(series.x[-1] for series in full))


def tag_of(name: str, source: str) -> str:
    return name if source in ("", "trainer") else f"{name}/{source}"
