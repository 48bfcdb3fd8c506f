"""Where a run is placed: in the pool that it names, on slots that suit it; and how a node is emptied."""

from __future__ import annotations

from typing import Any

import pytest

from control_plane.assets.models import BaseModel
from control_plane.fleet import pools
from control_plane.fleet.models import Lease, Slot
from control_plane.runs.models import Attempt
from control_plane.runs.scheduling import schedule_runs

GIB = 2**30


def warnings(alice: Any, **changes: Any) -> set[str]:
    found = alice.post("/runs/validate", {"spec": alice.spec(**changes)}).json()
    assert found["errors"] == []
    return {warning["code"] for warning in found["warnings"]}


def test_a_run_is_placed_in_the_pool_that_it_names(alice: Any, node: Any, tick: Any) -> None:
    pools.create_pool("lab", all_teams=True)
    default, lab = node("default-node"), node("lab-node", pool="lab")
    first, second = alice.run(), alice.run(placement={"pool": "lab"})
    assert first["spec"]["placement"]["pool"] == "default"
    tick()
    assert {attempt.run_id: attempt.node_id for attempt in Attempt.objects.all()} == {
        first["id"]: default.node_id, second["id"]: lab.node_id,
    }  # fmt: skip
    third = alice.run(placement={"pool": "lab"})
    tick()
    assert (
        alice.see(third["id"])["pending_reason"] == "needs 2 slots on one node; 0 of 2 are free on lab-node"
    )
    assert [run["run_id"] for run in alice.get("/pool?pool=lab").json()["queue"]] == [third["id"]]
    assert alice.get("/pool").json()["queue"] == []


def test_quotas_count_each_pool_for_itself(alice: Any, node: Any, tick: Any) -> None:
    lab = pools.create_pool("lab", all_teams=True)
    pools.set_quota(lab, alice.project.team, limit_slots=2)
    node("default-node"), node("lab-node", slots=4, pool="lab")
    runs = [alice.run(), alice.run(placement={"pool": "lab"}), alice.run(placement={"pool": "lab"})]
    tick()
    assert [alice.see(run["id"])["status"] for run in runs] == ["STARTING", "STARTING", "QUEUED"]
    assert "the team's limit is 2 slots" in alice.see(runs[2]["id"])["pending_reason"]


@pytest.mark.parametrize(
    ("changes", "parameters", "device"),
    [
        ({}, 10_000_000, None),
        ({"trainer": {"dtype": "bfloat16"}}, 10_000_000, "cuda"),
        ({}, 7_000_000_000, "cuda"),
        ({"trainer": {"dtype": "bfloat16"}, "placement": {"device": "cpu"}}, 10_000_000, "cpu"),
        ({"placement": {"min_gpu_memory_gib": 40}}, 10_000_000, "cuda"),
        ({"placement": {"gpu_model": "H100"}}, 10_000_000, "cuda"),
    ],
)
def test_the_device_is_written_into_the_resolved_spec(
    alice: Any, changes: Any, parameters: int, device: str | None
) -> None:
    BaseModel.objects.update(parameters=parameters)
    assert alice.run(**changes)["spec"]["placement"]["device"] == device


def test_a_lease_begins_after_the_one_before_it_although_the_plan_began_earlier(
    alice: Any, node: Any, start: Any, clock: Any
) -> None:
    machine = node()
    first = start(machine)
    alice.post(f"/runs/{first['id']}/cancel")
    second = alice.run()
    planned_at = clock.now
    clock.forward(2)  # in which the plan reads what there is
    machine.beat()
    machine.beat()
    schedule_runs(now=planned_at)
    assert alice.see(second["id"])["status"] == "STARTING"
    released = set(Lease.objects.filter(run=first["id"]).values_list("released_at", flat=True))
    granted = set(Lease.objects.filter(run=second["id"]).values_list("granted_at", flat=True))
    assert granted == released == {clock.now}


def test_a_waiting_run_has_the_code_of_its_reason_in_an_event(alice: Any, node: Any, tick: Any) -> None:
    node(slots=1)
    run = alice.run()
    tick()
    (waiting,) = [event for event in alice.events(run["id"]) if event["kind"] == "waiting"]
    assert waiting["message"] == alice.see(run["id"])["pending_reason"]
    assert waiting["data"] == {"code": "never_fits"}


def test_a_bf16_run_of_7b_never_lands_on_cpu_slots(alice: Any, node: Any, tick: Any) -> None:
    BaseModel.objects.update(parameters=7_000_000_000)
    node("laptop", slots=8, slot_memory_bytes=256 * GIB)
    changes = {"trainer": {"dtype": "bfloat16"}, "placement": {"min_gpu_memory_gib": 60}}
    assert "no_such_device" in warnings(alice, **changes)
    run = alice.run(**changes)
    tick()
    seen = alice.see(run["id"])
    assert (seen["status"], seen["pending_reason"]) == (
        "QUEUED",
        "needs cuda slots; pool default has cpu slots only",
    )
    node("small", device="cuda", slot_memory_bytes=40 * GIB)
    tick()
    assert "at least 60 GiB; the largest of pool default has 40 GiB" in alice.see(run["id"])["pending_reason"]
    assert "no_such_gpu" in warnings(alice, **changes)
    large = node("large", device="cuda", slot_memory_bytes=80 * GIB)
    assert not {"no_such_gpu", "no_such_device"} & warnings(alice, **changes)
    tick()
    assert Attempt.objects.get().node_id == large.node_id


def test_gpu_memory_on_a_cpu_is_refused_with_both_fields(alice: Any) -> None:
    spec = alice.spec(placement={"device": "cpu", "min_gpu_memory_gib": 40})
    (fault,) = alice.post("/runs/validate", {"spec": spec}).json()["errors"]
    assert fault["pointer"] == "/placement/min_gpu_memory_gib"
    assert "min_gpu_memory_gib=40 with device='cpu'" in fault["message"]


def test_a_run_that_names_a_gpu_model_lands_on_such_a_gpu(alice: Any, node: Any, tick: Any) -> None:
    node("other", device="cuda")
    chosen = node("chosen", device="cuda")
    Slot.objects.filter(node=chosen.node_id).update(model="NVIDIA H100 80GB HBM3")
    run = alice.run(placement={"gpu_model": "h100"})
    tick()
    assert Attempt.objects.get(run=run["id"]).node_id == chosen.node_id
    spec = alice.spec(placement={"device": "cpu", "gpu_model": "H100"})
    (fault,) = alice.post("/runs/validate", {"spec": spec}).json()["errors"]
    assert fault["pointer"] == "/placement/gpu_model"
    assert "gpu_model='H100' with device='cpu'" in fault["message"]


def test_a_node_whose_drain_is_done_says_so(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine, idle = node(), node("idle", slots=1)
    start(machine)
    assert alice.post(f"/pool/nodes/{idle.node_id}/drain").json()["status"] == "DRAINED"
    assert alice.post(f"/pool/nodes/{machine.node_id}/drain").json()["status"] == "DRAINING"
    for _ in range(4):
        tick(10)
        machine.ship_all()
        machine.beat()
    status = {one["name"]: one["status"] for one in alice.get("/pool").json()["nodes"]}
    assert status == {"node-1": "DRAINED", "idle": "DRAINED"}
    assert alice.post(f"/pool/nodes/{machine.node_id}/uncordon").json()["status"] == "READY"


def test_a_drain_moves_an_evaluation_too(alice: Any, node: Any, start: Any, tick: Any) -> None:
    machine = node()
    run = start(
        machine, kind="eval", dataset={"version": "sums@1", "split": "eval"}, evaluation={"prompts": 8}
    )
    alice.post(f"/pool/nodes/{machine.node_id}/drain")
    for _ in range(4):
        tick(10)
        machine.ship_all()
        machine.beat()
    assert alice.see(run["id"])["status"] == "QUEUED"
    other = node("other")
    tick(90)
    assert Attempt.objects.get(run_id=run["id"], number=2).node_id == other.node_id
