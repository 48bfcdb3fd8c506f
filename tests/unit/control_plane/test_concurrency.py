"""Two of everything at once, on real connections."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection

from control_plane.common.locks import only_one
from control_plane.fleet.models import Lease
from control_plane.runs.models import Attempt, Run
from control_plane.runs.placement import place_jobs
from control_plane.runs.progress import advance_runs

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` in threads that begin together, each with a connection of its own."""
    barrier = Barrier(count)

    def begin() -> Any:
        try:
            barrier.wait(timeout=10)
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(begin) for _ in range(count)]
        return [future.result(timeout=30) for future in futures]


def test_planners_that_run_at_once_sell_every_slot_once(alice: Any, node: Any, clock: Any) -> None:
    for index in range(3):
        node(f"node-{index}", slots=2)
    for index in range(4):
        alice.run(name=f"run {index}")
    at_once(4, lambda: place_jobs(now=clock.now))
    open_leases = Lease.objects.filter(released_at=None)
    assert open_leases.count() == open_leases.values("slot").distinct().count() == 6
    assert Attempt.objects.count() == Run.objects.filter(status="STARTING").count() == 3


def test_heartbeats_stops_and_ticks_at_once_end_in_one_order(
    alice: Any, node: Any, start: Any, clock: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)

    def everything() -> None:
        machine.beat()
        advance_runs(now=clock.now)
        alice.post(f"/runs/{run['id']}/stop")
        place_jobs(now=clock.now)

    at_once(4, everything)
    for _ in range(4):
        machine.beat()
        tick(25)
    assert alice.see(run["id"])["status"] == "STOPPED"
    moves = [event["data"]["after"] for event in alice.events(run["id"]) if event["kind"] == "status"]
    assert moves == ["STARTING", "RUNNING", "STOPPING", "STOPPED"]


def test_a_tick_that_runs_already_is_not_run_again(db: None) -> None:
    ran = []

    @only_one("a tick of this test")
    def outer() -> None:
        ran.append("outer")
        at_once(2, only_one("a tick of this test")(lambda: ran.append("inner")))

    outer()
    assert ran == ["outer"]
    outer()
    assert ran == ["outer", "outer"], "the lock is given back"
