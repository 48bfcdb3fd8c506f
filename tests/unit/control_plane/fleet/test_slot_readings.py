"""What a node says of its slots: readings, and processes of others, on which nothing is placed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control_plane.fleet.metrics import slot_states
from control_plane.runs.models import Run
from oolong.contracts.agent import SlotProcess

OTHERS = SlotProcess(pid=7, user="eve", command="python3 train.py --token secret", memory_bytes=2**30)


def reads(machine: Any, monkeypatch: pytest.MonkeyPatch, **readings: Any) -> None:
    """The node's next heartbeat has these readings of its first slot."""
    plain = type(machine).inventory(machine)
    first, *rest = plain.slots
    slots = [msgspec.structs.replace(first, **readings), *rest]
    monkeypatch.setattr(machine, "inventory", lambda: msgspec.structs.replace(plain, slots=slots))
    machine.beat()


def test_readings_are_shown_and_follow_the_heartbeats(
    alice: Any, node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = node()
    reads(machine, monkeypatch, utilization=0.75, memory_used_bytes=2**30, celsius=61.0)
    slot, other = alice.get("/pool").json()["slots"]
    assert (slot["utilization"], slot["memory_used_bytes"], slot["celsius"]) == (0.75, 2**30, 61.0)
    assert other["utilization"] is None
    reads(machine, monkeypatch, utilization=0.0)
    assert alice.get("/pool").json()["slots"][0]["utilization"] == 0.0


def test_nothing_is_placed_upon_a_slot_that_others_use(
    alice: Any, node: Any, tick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = node(slots=2)
    reads(machine, monkeypatch, occupied_by=[OTHERS])
    run = alice.run()  # it needs both slots
    tick()
    assert Run.objects.get(pk=run["id"]).status == "QUEUED"
    assert [slot["state"] for slot in alice.get("/pool").json()["slots"]] == ["occupied", "free"]
    assert slot_states() == {"free": 1, "held": 0, "occupied": 1, "unhealthy": 0, "unreachable": 0}
    reads(machine, monkeypatch, occupied_by=[])
    tick()
    assert Run.objects.get(pk=run["id"]).status == "STARTING"


def test_a_held_slot_stays_held_when_others_come(
    alice: Any, node: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = node()
    run = start(machine)
    reads(machine, monkeypatch, occupied_by=[OTHERS])
    slot = alice.get("/pool").json()["slots"][0]
    assert (slot["state"], slot["occupied_by"][0]["user"]) == ("held", "eve")
    assert alice.see(run["id"])["status"] == "RUNNING"
    machine.beat()
    said = [event["message"] for event in alice.events(run["id"]) if event["kind"] == "slot_shared"]
    assert said == ["cpu-0 of node-1, which trainer holds, is also used by eve (pid 7)"], "said once"


def test_only_those_who_manage_the_pool_see_commands_of_others(
    alice: Any, node: Any, person: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads(node(), monkeypatch, occupied_by=[OTHERS])
    (shown,) = alice.get("/pool").json()["slots"][0]["occupied_by"]
    assert shown == {"pid": 7, "user": "eve", "command": OTHERS.command, "memory_bytes": 2**30}
    (shown,) = person("bob", team="blue").get("/pool").json()["slots"][0]["occupied_by"]
    assert shown["command"] == "" and shown["user"] == "eve"
