"""A seeded synthetic load for the pool: who submits which run when, and when nodes fail."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from control_plane.fleet.snapshot import TeamQuota

HOUR, DAY = 3600.0, 86_400.0
GPU_MEMORY_BYTES = 80 * 2**30


@dataclass(frozen=True)
class TeamLoad:
    share: float  # of the submitted runs
    quota: TeamQuota = field(default_factory=TeamQuota)


@dataclass(frozen=True)
class Load:
    """Submissions are a Poisson process with a daily cycle; durations are lognormal, so that few runs take most of the
    time. Times are in seconds."""

    teams: Mapping[str, TeamLoad]
    days: float = 3.0  # in which runs are submitted
    nodes: int = 16
    slots_per_node: int = 8
    offered_load: float = 0.9  # mean of the submitted slot-seconds over those of the pool
    daily_swing: float = 0.8  # the rate is between (1 - swing) and (1 + swing) times its mean
    slots: Mapping[int, float] = field(default_factory=lambda: {1: 0.35, 2: 0.3, 4: 0.2, 8: 0.15})
    median_duration: float = 40 * 60.0
    sigma: float = 1.2  # of the logarithm of the duration
    longest_duration: float = DAY
    playground_share: float = 0.15  # of the runs: one slot, preemptible
    elastic_share: float = 0.2  # of the runs: they borrow up to two idle slots of their node
    checkpoint_interval: float = 15 * 60.0
    save_seconds: float = 60.0  # from a checkpoint request to the exit of the trainer
    node_mtbf: float = 200 * HOUR  # mean time between the failures of one node
    node_repair: float = 2 * HOUR  # mean
    # Sigma of the logarithm of the error of predicted durations; None: no duration is predicted.
    prediction_sigma: float | None = 0.4


@dataclass(frozen=True)
class Submission:
    at: float
    name: str
    team: str
    slots: int
    duration: float  # seconds of work on its slots
    playground: bool
    extra_engines: int  # idle slots that it would borrow
    predicted: float | None = None  # p50 of its duration, as it is known when it is submitted


def submissions(load: Load, *, seed: int) -> list[Submission]:
    """In the order of their times, which lie within `load.days`."""
    rng = random.Random(f"submissions-{seed}")
    teams, shares = list(load.teams), [team.share for team in load.teams.values()]
    errors = random.Random(
        f"predictions-{seed}"
    )  # of its own: the load is the same with and without predictions
    found = []
    for number, at in enumerate(_times(load, rng)):
        playground = rng.random() < load.playground_share
        slots = 1 if playground else rng.choices(list(load.slots), list(load.slots.values()))[0]
        duration = min(load.longest_duration, rng.lognormvariate(math.log(load.median_duration), load.sigma))
        elastic = not playground and rng.random() < load.elastic_share
        predicted = None
        if load.prediction_sigma is not None and not playground:
            predicted = duration * errors.lognormvariate(0.0, load.prediction_sigma)
        found.append(
            Submission(
                at, f"run-{number:05}", rng.choices(teams, shares)[0], slots, duration, playground,
                2 if elastic else 0, predicted,
            )
        )  # fmt: skip
    return found


def node_failures(load: Load, *, seed: int) -> list[tuple[float, int, float]]:
    """(time, node, seconds until it is repaired), in the order of the times."""
    rng = random.Random(f"failures-{seed}")
    found = []
    for node in range(load.nodes):
        at = rng.expovariate(1 / load.node_mtbf)
        while at < load.days * DAY:
            down = rng.expovariate(1 / load.node_repair)
            found.append((at, node, down))
            at += down + rng.expovariate(1 / load.node_mtbf)
    return sorted(found)


def _times(load: Load, rng: random.Random) -> Iterator[float]:
    """Times of an inhomogeneous Poisson process by thinning; the most submissions come at 15 o'clock."""
    mean_duration = min(load.longest_duration, load.median_duration * math.exp(load.sigma**2 / 2))
    wide = sum(slots * share for slots, share in load.slots.items()) / sum(load.slots.values())
    mean_slots = load.playground_share + (1 - load.playground_share) * wide
    rate = load.offered_load * load.nodes * load.slots_per_node / (mean_slots * mean_duration)
    at = 0.0
    while (at := at + rng.expovariate(rate * (1 + load.daily_swing))) < load.days * DAY:
        now = 1 + load.daily_swing * math.sin(2 * math.pi * (at / DAY - 9 / 24))
        if rng.random() * (1 + load.daily_swing) < now:
            yield at
