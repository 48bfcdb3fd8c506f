"""Schedules one pool: a pure function from a snapshot to placements, preemptions, loans of idle slots, and a reason for
each request that waits."""

from __future__ import annotations

from dataclasses import replace

from control_plane.fleet.idle_slots import lend_idle_slots
from control_plane.fleet.placement import place_queue
from control_plane.fleet.preemption import select_victims
from control_plane.fleet.reservations import reserve_slots, runs_to_release
from control_plane.fleet.snapshot import Plan, Snapshot


def plan(snapshot: Snapshot) -> Plan:
    """The same plan for the same snapshot, in whatever order its queue, nodes and holders are."""
    snapshot = replace(snapshot, nodes=sorted(snapshot.nodes, key=lambda node: (node.name, node.id)))
    reserved = reserve_slots(snapshot)
    placed = place_queue(snapshot, reserved)
    preemptions = {
        one.holder: one
        for one in (
            *select_victims(placed, placed.view),
            *placed.on_reserved.preemptions,
            *runs_to_release(snapshot, reserved),
        )
    }
    return Plan(
        placements=tuple(placed.placements),
        waiting=placed.waiting,
        preemptions=tuple(preemptions.values()),
        loans=lend_idle_slots(placed, placed.view),
        promises=placed.backfill.promises,
        allocations=reserved.allocations,
    )
