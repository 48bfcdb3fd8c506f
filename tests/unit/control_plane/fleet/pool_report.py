"""What a simulated pool did: utilization, waiting times, preemptions and fairness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import quantiles
from typing import TYPE_CHECKING

from control_plane.fleet.snapshot import TeamQuota

if TYPE_CHECKING:
    from tests.unit.control_plane.fleet.simulated_pool import Run


@dataclass(frozen=True)
class Waits:
    """Seconds from submission to the first start."""

    runs: int
    p50: float
    p90: float


@dataclass(frozen=True)
class PoolReport:
    utilization: float  # slot-seconds that runs held over those of nodes that were up
    efficiency: float  # the same over what was wanted: the smaller of demand and capacity
    borrowed: float  # slot-seconds that runs borrowed as extra engines over those of nodes that were up
    waits: Mapping[str, Waits]  # by team
    wait_of_widest: Waits  # of the runs that need the most slots
    received: Mapping[str, float]  # team → slot-seconds over its fair share, while the pool was contended
    fairness: float  # Jain's index of `received`
    runs: int
    preemptions: int
    most_preemptions_of_a_run: int
    lost_gpu_seconds_of_preemptions: float  # computed again, because it was not in the checkpoint
    node_failures: int
    lost_gpu_seconds_of_failures: float
    reclaims: int  # of borrowed slots


@dataclass
class ReportBuilder:
    quotas: Mapping[str, TeamQuota]
    busy: float = 0.0
    borrowed: float = 0.0
    capacity: float = 0.0
    wanted: float = 0.0
    received: Counter[str] = field(default_factory=Counter)
    fair: Counter[str] = field(default_factory=Counter)
    lost_slot_seconds: float = 0.0
    failed_slot_seconds: float = 0.0
    node_failures: int = 0
    reclaims: int = 0

    def pass_time(
        self,
        seconds: float,
        held: Mapping[str, int],
        queued: Mapping[str, int],
        *,
        borrowed: int,
        capacity: int,
    ) -> None:
        """`held` and `queued` are slots by team."""
        demand = {team: held[team] + queued[team] for team in self.quotas}
        self.busy += seconds * sum(held.values())
        self.borrowed += seconds * borrowed
        self.capacity += seconds * capacity
        self.wanted += seconds * min(capacity, sum(demand.values()))
        if sum(demand.values()) > capacity:  # otherwise every team gets all that it wants
            for team, share in fair_shares(capacity, demand, self.quotas).items():
                self.received[team] += seconds * held[team]  # type: ignore[assignment]
                self.fair[team] += seconds * share  # type: ignore[assignment]

    def build(self, runs: Iterable[Run], *, interval: float) -> PoolReport:
        runs = list(runs)
        for run in runs:
            assert run.finished is not None and run.first_start is not None
            assert run.finished - run.submission.at >= run.submission.duration * (
                0 if run.submission.playground else 0.999
            )
        received = {team: self.received[team] / fair for team, fair in self.fair.items() if fair}
        widest = max(run.submission.slots for run in runs)
        return PoolReport(
            utilization=self.busy / self.capacity,
            efficiency=self.busy / self.wanted,
            borrowed=self.borrowed / self.capacity,
            waits={team: _waits(run for run in runs if run.submission.team == team) for team in self.quotas},
            wait_of_widest=_waits(run for run in runs if run.submission.slots == widest),
            received=received,
            fairness=jain(list(received.values())),
            runs=len(runs),
            preemptions=sum(run.preemptions for run in runs),
            most_preemptions_of_a_run=max(run.preemptions for run in runs),
            lost_gpu_seconds_of_preemptions=self.lost_slot_seconds,
            node_failures=self.node_failures,
            lost_gpu_seconds_of_failures=self.failed_slot_seconds,
            reclaims=self.reclaims,
        )


def fair_shares(
    capacity: float, demand: Mapping[str, float], quotas: Mapping[str, TeamQuota]
) -> dict[str, float]:
    """Max-min fair slots of each team: its nominal quota first, then equal parts of the rest, never more than its
    demand or its limit."""
    most = {
        team: wanted if (limit := quotas[team].limit) is None else min(wanted, limit)
        for team, wanted in demand.items()
    }
    shares = {team: min(wanted, quotas[team].nominal) for team, wanted in most.items()}
    rest = capacity - sum(shares.values())
    hungry = {team for team, wanted in most.items() if wanted > shares[team]}
    while hungry and rest > 1e-9:
        part = rest / len(hungry)
        for team in sorted(hungry):
            more = min(part, most[team] - shares[team])
            shares[team] += more
            rest -= more
        hungry = {team for team in hungry if most[team] - shares[team] > 1e-9}
    return shares


def jain(values: list[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything (Jain, Chiu, Hawe 1984, eq. 2)."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values)) if values else 1.0


def _waits(runs: Iterable[Run]) -> Waits:
    seconds = sorted((run.first_start or 0.0) - run.submission.at for run in runs)
    if len(seconds) < 2:
        return Waits(len(seconds), *[seconds[0] if seconds else 0.0] * 2)
    deciles = quantiles(seconds, n=10, method="inclusive")
    return Waits(len(seconds), deciles[4], deciles[8])
