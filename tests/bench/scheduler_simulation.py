"""How well the scheduler uses and shares a pool over simulated days: `python -m tests.bench.scheduler_simulation`.

Four teams submit runs to 16 nodes of 8 slots for five days; the real scheduler.plan() decides. The baseline is the same
load without nominal quotas, so that no run is preempted. The figures are of simulated time, so that they do not depend
on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from statistics import mean
from typing import Any

from control_plane.fleet.snapshot import TeamQuota
from tests.unit.control_plane.fleet.pool_report import PoolReport
from tests.unit.control_plane.fleet.simulated_pool import MIN_RUNTIME, SimulatedPool
from tests.unit.control_plane.fleet.synthetic_load import HOUR, Load, TeamLoad

SEEDS = (0, 1, 2)
TEAMS = {
    "large": TeamLoad(0.5, TeamQuota(nominal=48)),
    "middle": TeamLoad(0.3, TeamQuota(nominal=32)),
    "small": TeamLoad(0.15, TeamQuota(nominal=16, lending_limit=8)),
    "guests": TeamLoad(0.05, TeamQuota(limit=32)),
}
LOAD = Load(TEAMS, days=5, node_mtbf=60 * HOUR)


def without_nominal_quotas(load: Load) -> Load:
    teams = {team: replace(one, quota=TeamQuota(limit=one.quota.limit)) for team, one in load.teams.items()}
    return replace(load, teams=teams)


def measure() -> list[dict[str, Any]]:
    with_quotas = [SimulatedPool(LOAD, seed=seed).play() for seed in SEEDS]
    baseline = [SimulatedPool(without_nominal_quotas(LOAD), seed=seed).play() for seed in SEEDS]
    settings = {
        "load": _settings(LOAD),
        "with_quotas": [asdict(report) for report in with_quotas],
        "without_nominal_quotas": [asdict(report) for report in baseline],
        "teams": [_team_row(team, with_quotas, baseline) for team in TEAMS],
    }
    return [
        {
            "key": "scheduler_simulation",
            "value": mean(one.efficiency for one in with_quotas),
            "unit": "share of the slots wanted",
            "baseline": f"the same load without nominal quotas: {mean(one.efficiency for one in baseline):.3g}",
            "seeds": list(SEEDS),
            "settings": settings,
        },
        {
            "key": "scheduler_simulation_fairness",
            "value": mean(one.fairness for one in with_quotas),
            "unit": "Jain's index",
            "baseline": "the same load without nominal quotas, against equal shares: "
            f"{mean(one.fairness for one in baseline):.3g}",
            "seeds": list(SEEDS),
            "settings": {"see": "scheduler_simulation"},
        },
    ]


def _settings(load: Load) -> Mapping[str, Any]:
    return {**asdict(load), "min_runtime": MIN_RUNTIME, "times": "seconds"}


def _team_row(team: str, reports: list[PoolReport], baseline: list[PoolReport]) -> dict[str, Any]:
    return {
        "team": team,
        "nominal": TEAMS[team].quota.nominal,
        "runs": sum(report.waits[team].runs for report in reports),
        "wait_p50": mean(report.waits[team].p50 for report in reports),
        "wait_p90": mean(report.waits[team].p90 for report in reports),
        "wait_p50_without": mean(report.waits[team].p50 for report in baseline),
        "wait_p90_without": mean(report.waits[team].p90 for report in baseline),
        "received": mean(report.received[team] for report in reports),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
