"""Enrollment, artifacts and checkpoint uploads, over the agent protocol."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test import Client

from control_plane.assets.storage import multipart, store
from control_plane.checkpoints.models import Checkpoint
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Node
from control_plane.runs import selectors
from control_plane.runs.models import Attempt
from oolong.contracts.agent import EnrollReply, EnrollRequest, Inventory, SlotInventory
from tests.support import node_ports


def enroll(token: str, name: str = "machine") -> Any:
    inventory = Inventory(
        hostname=name, agent_version="0", boot_id="b", cpu_count=1, memory_bytes=1, disk_free_bytes=1,
        slots=[SlotInventory(slot="cpu-0", device="cpu"), SlotInventory(slot="cpu-1", device="cpu", healthy=False)],
    )  # fmt: skip
    return Client().post(
        "/api/v1/agent/enroll", data=msgspec.json.encode(EnrollRequest(name=name, inventory=inventory)),
        content_type="application/json", headers={"authorization": f"Bearer {token}"},
    )  # fmt: skip


def test_a_node_joins_with_a_token_that_works_once(alice: Any) -> None:
    token = alice.post("/pools/default/join-tokens").json()["token"]
    reply = enroll(token)
    assert reply.status_code == 201
    granted = msgspec.json.decode(reply.content, type=EnrollReply)
    row = Node.objects.get(pk=granted.node_id)
    assert row.credential_sha256 == hashlib.sha256(granted.credential.encode()).hexdigest()
    assert (granted.lease_ttl_seconds, granted.orphan_ttl_seconds) == (45, 4500)
    again = enroll(token, "intruder")
    assert (again.status_code, again.json()["code"]) == (409, "join_token_used")
    assert Node.objects.count() == 1
    slots = {slot["name"]: slot["state"] for slot in alice.get("/pool").json()["slots"]}
    assert slots == {"cpu-0": "free", "cpu-1": "unhealthy"}


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("inventory", "cpu_count"), -1, ">= 0"),
        (("inventory", "cpu_count"), 2**31, "<= 2147483647"),
        (("inventory", "memory_bytes"), 2**63, "$.inventory.memory_bytes"),
        (("inventory", "disk_free_bytes"), -1, ">= 0"),
        (("inventory", "slots", 0, "memory_bytes"), 2**60, "$.inventory.slots[0].memory_bytes"),
        (("inventory", "slots", 0, "slot"), "s" * 81, "<= 80"),
        (("inventory", "slots", 0, "device"), "cpu" * 6, "<= 16"),
        (("name",), "n" * 121, "<= 120"),
    ],
)
def test_a_node_with_values_that_cannot_be_stored_is_rejected_with_the_field(
    alice: Any, place: tuple[str | int, ...], value: Any, said: str
) -> None:
    token = alice.post("/pools/default/join-tokens").json()["token"]
    body: dict[str, Any] = {
        "name": "machine",
        "inventory": {
            "hostname": "machine", "agent_version": "0", "boot_id": "b", "cpu_count": 1, "memory_bytes": 1,
            "disk_free_bytes": 1, "slots": [{"slot": "cpu-0", "device": "cpu"}],
        },
    }  # fmt: skip
    at: Any = body
    for step in place[:-1]:
        at = at[step]
    at[place[-1]] = value
    reply = Client().post(
        "/api/v1/agent/enroll", data=body, content_type="application/json",
        headers={"authorization": f"Bearer {token}"},
    )  # fmt: skip
    assert (reply.status_code, said in reply.json()["detail"]) == (422, True), reply.content
    assert not Node.objects.exists()


def test_nodes_of_tests_that_share_a_machine_have_ports_of_their_own(alice: Any, checkout: Path) -> None:
    assert (node_ports.PORTS_FROM, node_ports.PORTS_TO) == (fleet.PORTS_FROM, fleet.PORTS_TO)
    with connection.cursor() as cursor:
        cursor.execute(node_ports.apart())
    for name in ("one", "two"):
        assert enroll(alice.post("/pools/default/join-tokens").json()["token"], name).status_code == 201
    begins = Node.objects.filter(name__in=["one", "two"]).values_list("next_port", flat=True)
    ours = node_ports.first_of_session()
    assert set(begins) < set(range(ours, ours + node_ports.OF_A_SESSION, node_ports.OF_A_NODE))
    assert len(set(begins)) == 2
    program = "from tests.support.node_ports import first_of_session; print(first_of_session())"
    beside = subprocess.run([sys.executable, "-c", program], cwd=checkout, capture_output=True, check=True)
    assert int(beside.stdout) != ours


def test_an_old_or_unknown_join_token_is_refused(alice: Any, clock: Any) -> None:
    token = alice.post("/pools/default/join-tokens").json()["token"]
    clock.forward(15 * 60)
    assert (enroll(token).status_code, enroll("ooljoin_guess").status_code) == (410, 401)
    assert not Node.objects.exists()


def test_a_malformed_heartbeat_is_refused_by_name(node: Any) -> None:
    reply = node().post("/heartbeat", b'{"inventory": {}}')
    assert reply.status_code == 422
    assert "HeartbeatRequest" in reply.json()["detail"]


def test_an_unhealthy_or_vanished_slot_is_not_sold(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=2)
    machine.slots = 1
    machine.beat()
    run = alice.run()
    tick()
    assert alice.see(run["id"])["pending_reason"] == (
        "needs 2 slots on one node that offers /models/tiny; the largest such node has 1"
    )


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("", 200, slice(None)),
        ("bytes=0-9", 206, slice(0, 10)),
        ("bytes=5-", 206, slice(5, None)),
        ("bytes=-4", 206, slice(-4, None)),
        ("bytes=3-999999", 206, slice(3, None)),
        ("bytes=999999-", 416, None),
        ("bytes=9-3", 416, None),
        ("pages=1-2", 200, slice(None)),
    ],
)
def test_an_artifact_is_fetched_in_ranges(
    alice: Any, node: Any, start: Any, asked: str, status: int, expected: slice | None
) -> None:
    machine = node()
    start(machine)
    artifact = machine.reply.attempts[0].dataset
    whole = Path(store.presign(artifact.sha256)).read_bytes()
    reply = machine.get(f"/artifacts/{artifact.sha256}", **({"range": asked} if asked else {}))
    assert reply.status_code == status
    if expected is not None:
        body = b"".join(reply.streaming_content)
        assert body == whole[expected]
        assert reply.headers["Content-Length"] == str(len(body))
        assert reply.headers["ETag"] == f'"{artifact.sha256}"'
    else:
        assert reply.headers["Content-Range"] == f"bytes */{len(whole)}"


def announce(machine: Any, attempt: Attempt, data: bytes, **changes: Any) -> Any:
    body = {
        "step": 20, "manifest_sha256": "a" * 64, "tar_sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data), "epoch": attempt.epoch, **changes,
    }  # fmt: skip
    return machine.post(f"/attempts/{attempt.pk}/checkpoints", json.dumps(body))


def put(machine: Any, upload: str, number: int, data: bytes, digest: str | None = None) -> Any:
    headers = {"authorization": f"Bearer {machine.credential}"}
    return machine.client.put(
        f"/api/v1/agent/uploads/{upload}/parts/{number}", data=data, content_type="application/octet-stream",
        headers={**headers, "x-part-sha256": digest or hashlib.sha256(data).hexdigest()},
    )  # fmt: skip


def test_an_interrupted_upload_goes_on_where_it_stopped_and_is_then_downloaded(
    alice: Any, node: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", 10)
    machine = node()
    run = start(machine)
    attempt = Attempt.objects.get()
    data = b"0123456789abcdefghijXYZ"
    first = announce(machine, attempt, data).json()
    assert (first["part_bytes"], first["received_parts"], first["stored"]) == (10, [], False)
    assert put(machine, first["upload_id"], 0, data[:10]).json()["received_parts"] == [0]
    assert put(machine, first["upload_id"], 2, data[20:]).json()["received_parts"] == [0, 2]
    early = machine.post(f"/uploads/{first['upload_id']}/complete", b"")
    assert (early.status_code, early.json()["code"]) == (409, "parts_missing")
    again = announce(machine, attempt, data).json()
    assert (again["upload_id"], again["received_parts"]) == (first["upload_id"], [0, 2])
    put(machine, first["upload_id"], 1, data[10:20])
    for _ in range(2):
        assert machine.post(f"/uploads/{first['upload_id']}/complete", b"").json()["stored"]
    assert announce(machine, attempt, data).json()["stored"]
    (checkpoint,) = alice.get(f"/checkpoints?run={run['id']}").json()["data"]
    assert (checkpoint["state"], checkpoint["step"], checkpoint["bytes"]) == ("STORED", 20, len(data))
    assert checkpoint["tar_sha256"] == hashlib.sha256(data).hexdigest()
    download = alice.get(f"/checkpoints/{checkpoint['id']}/download")
    assert b"".join(download.streaming_content) == data
    assert ".tar" in download.headers["Content-Disposition"]
    assert any(event["kind"] == "checkpoint_stored" for event in alice.events(run["id"]))


def test_parts_and_the_whole_are_verified(
    node: Any, start: Any, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multipart, "PART_BYTES", 10)
    machine = node()
    start(machine)
    attempt = Attempt.objects.get()
    data = b"0123456789abc"
    upload = announce(machine, attempt, data).json()["upload_id"]
    assert put(machine, upload, 0, b"too short").json()["code"] == "part_size"
    assert put(machine, upload, 0, data[:10], "0" * 64).json()["code"] == "checksum"
    assert put(machine, upload, 2, b"x").json()["code"] == "no_such_part"
    put(machine, upload, 0, b"9876543210")
    put(machine, upload, 1, data[10:])
    wrong = machine.post(f"/uploads/{upload}/complete", b"")
    assert (wrong.status_code, wrong.json()["code"]) == (422, "checksum")
    assert Checkpoint.objects.get().state == "LOCAL"
    assert announce(machine, attempt, data).json()["received_parts"] == [], "the bad parts are gone"


def test_a_checkpoint_that_is_only_local_is_listed_and_neither_downloaded_nor_used(
    alice: Any, node: Any, start: Any, commit_checkpoint: Any
) -> None:
    run = start(node())
    commit_checkpoint(run["id"], Attempt.objects.get().pk, step=3)
    (checkpoint,) = alice.get("/checkpoints").json()["data"]
    assert checkpoint["state"] == "LOCAL"
    assert alice.get(f"/checkpoints/{checkpoint['id']}/download").json()["code"] == "not_stored"
    spec = alice.spec(model={"checkpoint": checkpoint["id"]})
    (error,) = alice.post("/runs/validate", {"spec": spec}).json()["errors"]
    assert (error["pointer"], error["code"]) == ("/model/checkpoint", "not_stored")


def test_a_run_from_a_checkpoint_hands_its_tar_to_the_node_as_model(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node(slots=4)
    start(machine)
    first = Attempt.objects.get()
    machine.upload_checkpoint(first.pk, first.epoch, step=9)
    stored = Checkpoint.objects.get()
    run = alice.run(model={"checkpoint": stored.pk}, name="second")
    tick()
    (attempt,) = [attempt for attempt in machine.beat().attempts if attempt.run_id == run["id"]]
    assert attempt.model is not None
    assert (attempt.model.kind, attempt.model.sha256) == ("checkpoint", stored.tar_sha256)
    assert attempt.resume is None
    assert machine.get(f"/artifacts/{stored.tar_sha256}").status_code == 200


def test_ports_of_attempts_on_one_node_do_not_meet(alice: Any, node: Any, tick: Any) -> None:
    machine = node(slots=8)
    for index in range(4):
        alice.run(name=f"run {index}")
    tick()
    ports = [port for attempt in machine.beat().attempts for port in attempt.ports.values()]
    assert len(ports) == len(set(ports)) == 12


def test_ports_go_round_and_leave_out_what_a_run_still_holds(alice: Any, node: Any, tick: Any) -> None:
    """A run may last longer than the range."""
    node(slots=2)
    Node.objects.update(next_port=fleet.PORTS_FROM + 2)
    alice.run()
    tick()
    held = selectors.held_ports(Node.objects.get())
    assert held == set(range(fleet.PORTS_FROM + 2, fleet.PORTS_FROM + 5))
    row = Node.objects.get()
    row.next_port = fleet.PORTS_TO - 1
    first = fleet.PORTS_FROM
    assert fleet.allocate_ports(row, 5, held=held) == [
        fleet.PORTS_TO - 1,
        first,
        first + 1,
        first + 5,
        first + 6,
    ]
    assert row.next_port == first + 7
