"""How long the scheduler plans one pool: `python -m tests.bench.scheduler_cycle` prints it as JSON.

1,000 queued runs of 20 teams with quotas, each of two projects with quotas, on 500 nodes of 8 slots, of which none,
half or all are held. Most of the runs that hold slots and of those that wait have a predicted length. The value is the
median time of the slowest of the three worlds. Reading the snapshot from the database is not part of it.
"""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    NodeSnapshot,
    ProjectQuota,
    Request,
    SlotSnapshot,
    Snapshot,
    TeamQuota,
)

RUNS, NODES, SLOTS, TEAMS = 1_000, 500, 8, 20
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 2**30
REPEATS = 7


def world(busy: float, *, seed: int) -> Snapshot:
    rng = random.Random(seed)
    nodes, holders, used = [], [], {f"team-{index}": 0 for index in range(TEAMS)}
    free_at: dict[tuple[str, str], datetime] = {}
    predictions = random.Random(seed + 1)  # of its own: the world is that of earlier measurements
    project_used: dict[str, int] = {}
    for number in range(NODES):
        slots = tuple(SlotSnapshot(f"GPU-{number}-{index}", "cuda", 80 * GIB) for index in range(SLOTS))
        held = sum(rng.random() < busy for _ in range(SLOTS))
        name, team = f"node-{number}", rng.choice(list(used))
        nodes.append(NodeSnapshot(name, name, slots[held:], slots[:held], True, model_roots=("/models",)))
        used[team] += held
        if predictions.random() < 0.9:
            ends = NOW + timedelta(seconds=predictions.uniform(0, 36_000))
            free_at |= {(name, slot.name): ends for slot in slots[:held]}
        project = f"{team}-{number % 2}"
        project_used[project] = project_used.get(project, 0) + held
        holders.append(
            Holder(
                f"run-{number}", team, name, tuple(slot.name for slot in slots[:held]), False, HolderKind.RUN,
                protected=rng.random() < 0.1, lost_gpu_seconds=rng.random() * 1e5, project=project,
            )
        )  # fmt: skip
    queue = []
    for index in range(RUNS):
        team = rng.choice(list(used))
        queue.append(
            Request(
                f"queued-{index}", f"queued-{index}", team, 500, rng.choice([1, 2, 4, 8]),
                NOW - timedelta(seconds=index), model_path="/models/a", device=rng.choice(["", "cuda"]),
                slot_memory_bytes=rng.choice([0, 40 * GIB]), project=f"{team}-{index % 2}",
                predicted_seconds=predictions.choice([None, 600.0, 7200.0, 36_000.0]),
            )
        )  # fmt: skip
    return Snapshot(
        NOW, nodes, queue, used, {team: TeamQuota(nominal=100, lending_limit=50) for team in used},
        holders=[one for one in holders if one.slots], project_used=project_used, free_at=free_at,
        project_quotas={f"{team}-{index}": ProjectQuota(nominal=50) for team in used for index in (0, 1)},
    )  # fmt: skip


def milliseconds(snapshot: Snapshot) -> float:
    started = time.perf_counter()
    plan(snapshot)
    return (time.perf_counter() - started) * 1000


def measure(seed: int = 0) -> list[dict[str, Any]]:
    by_busy = {
        f"{busy:.0%} held": round(
            median(milliseconds(snapshot) for snapshot in [world(busy, seed=seed)] * REPEATS), 1
        )
        for busy in (0.0, 0.5, 1.0)
    }
    settings = {
        "queued_runs": RUNS, "nodes": NODES, "slots_per_node": SLOTS, "teams": TEAMS, "median_ms": by_busy
    }  # fmt: skip
    return [
        {
            "key": "scheduler_cycle_ms", "value": max(by_busy.values()), "unit": "ms", "seeds": [seed],
            "settings": settings,
        }
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(measure()))
