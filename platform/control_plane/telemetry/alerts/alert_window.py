"""The input of an alert rule: the newest points of one attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

STEPS = 60  # of the newest train steps in a window
START_STEPS = 20  # of the attempt's first train steps, to compare with
TIME_POINTS = 720  # an hour, at a point every five seconds


@dataclass(frozen=True, kw_only=True)
class Window:
    """The newest points of one attempt, oldest first."""

    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)  # metric -> its last STEPS values
    start: Mapping[str, Sequence[float]] = field(
        default_factory=dict
    )  # metric -> its first START_STEPS values
    times: Mapping[str, Sequence[Sequence[float]]] = field(
        default_factory=dict
    )  # metric -> per source, last hour
    seconds_since_step: float | None = None  # None before the attempt's first train step
    median_step_seconds: float = (
        0.0  # median of the run's newest steps, of earlier attempts too; 0: not known
    )
    boot_stage: str = ""  # what the attempt's boot has come to; empty once its first step is trained
    boot_seconds: float = 0.0  # since its slots were leased, while boot_stage is set
    generating_seconds: float | None = None  # since its first rollout, while boot_stage is set
    failed_boots: Sequence[str] = ()  # why, of each engine whose last boot failed
    enforces_bound: bool = False  # on_straggler is wait or drop
    buffer_capacity: int = 0  # finished groups that the gate lets wait for the trainer; 0: none, or not known

    def standstill(self, name: str) -> float:
        """The newest value of a metric that counts the seconds of a standstill; 0 when it is not known."""
        return max((values[-1] for values in self.times.get(name, ()) if values), default=0.0)

    def last(self, name: str, count: int) -> Sequence[float] | None:
        """The last `count` values by step; None when there are not so many."""
        values = self.steps.get(name, ())
        return values[-count:] if len(values) >= count else None
