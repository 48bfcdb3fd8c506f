"""A trainer whose ranks are on two nodes: what each node gets, and what the loss of one of them means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from control_plane.fleet.models import Lease
from control_plane.runs.models import Attempt, Job
from control_plane.runs.slot_holders import slot_holders
from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.lifecycle import EndReason

WIDE: dict[str, Any] = {"trainer": {"num_ranks": 4}, "placement": {"nodes": 2}}


@dataclass
class World:
    alice: Any
    head: Any
    other: Any
    run: Any
    tick: Callable[..., None]

    def beat(self, *nodes: Any) -> None:
        """Twice: a node reports what it started with the heartbeat after."""
        for node in [*(nodes or (self.head, self.other))] * 2:
            node.beat()

    def pass_seconds(self, count: int, *alive: Any) -> None:
        for _ in range(count // 10):
            self.tick(10)
            self.beat(*alive)

    def seen(self) -> Any:
        return self.alice.see(self.run["id"])

    def store_checkpoint(self, step: int = 3, *, final: bool = False) -> None:
        attempt = Attempt.objects.get(status="RUNNING")
        stored = self.head.upload_checkpoint(attempt.pk, attempt.epoch, step=step, final=final)
        assert stored.status_code == 200, stored.content


def only(attempts: list[DesiredAttempt]) -> DesiredAttempt:
    (attempt,) = attempts
    return attempt


@pytest.fixture
def world(alice: Any, node: Any, tick: Any) -> World:
    head, other = node("a", slots=3, peer_address="10.0.0.1"), node("b", slots=2, peer_address="10.0.0.2")
    world = World(alice, head, other, alice.run(**WIDE), tick)
    tick()
    world.beat()
    assert world.seen()["status"] == "RUNNING"
    return world


def test_both_nodes_get_their_ranks_and_where_they_meet(world: World) -> None:
    head, other = only(world.head.reply.attempts), only(world.other.reply.attempts)
    slots = {job.name: job.slots for job in head.jobs}
    assert slots == {
        "controller": [], "reward": [], "rollout-0": ["cpu-2"], "trainer": ["cpu-0", "cpu-1"],
    }  # fmt: skip
    assert [(job.name, job.slots) for job in other.jobs] == [("trainer-1", ["cpu-0", "cpu-1"])]
    assert head.gang is not None and other.gang is not None
    assert (head.gang.node_rank, head.gang.own_address) == (0, "10.0.0.1")
    assert (other.gang.node_rank, other.gang.own_address) == (1, "10.0.0.2")
    for gang in (head.gang, other.gang):
        assert (gang.address, gang.port, gang.nodes) == ("10.0.0.1", head.ports["rendezvous"], 2)
    assert (other.ports, other.listener) == ({}, None)
    assert (other.epoch, other.token) == (head.epoch, head.token)
    assert world.other.get(f"/artifacts/{other.dataset.sha256}").status_code == 200
    jobs = world.alice.get(f"/runs/{world.run['id']}/jobs").json()["data"]
    where = {job["name"]: job["node"]["name"] for job in jobs}
    assert where == {**dict.fromkeys(slots, "a"), "trainer-1": "b"}


def test_a_run_completes_when_the_ranks_of_all_nodes_have(world: World) -> None:
    world.store_checkpoint(9, final=True)
    for name in ("controller", "trainer"):
        world.head.exit(world.head.job(name), EndReason.COMPLETED)
    world.beat()
    assert world.seen()["status"] == "RUNNING"
    world.other.exit(Job.objects.get(name="trainer-1").pk, EndReason.COMPLETED)
    for _ in range(3):
        world.beat()
        world.head.ship_all()
        world.other.ship_all()
        world.tick()
    assert (world.seen()["status"], world.seen()["attempt_number"]) == ("SUCCEEDED", 1)
    assert not Lease.objects.filter(released_at=None).exists()


@pytest.mark.parametrize("lost", ["head", "other"])
def test_the_loss_of_a_node_is_a_new_attempt_from_the_last_checkpoint(
    world: World, node: Any, clock: Any, lost: str
) -> None:
    world.store_checkpoint()
    spare = node("c", slots=3, peer_address="10.0.0.3")
    dead, alive = (world.head, world.other) if lost == "head" else (world.other, world.head)
    name = "trainer-1" if lost == "head" else "trainer"
    crashed = Job.objects.get(name=name)
    alive.exit(crashed.pk, None, code=1)  # its ranks lose those of the node that died
    world.tick(10)
    world.beat(alive, spare)
    world.tick()
    assert (world.seen()["status"], world.seen()["attempt_number"]) == ("RUNNING", 1), "the cause is unknown"
    for _ in range(6):
        world.pass_seconds(10, alive, spare)
        alive.ship_all()
    old, new = Attempt.objects.order_by("number")
    assert (old.status, old.reason) == ("ENDED", EndReason.NODE_LOST)
    assert new.resume_checkpoint is not None and new.resume_checkpoint.step == 3
    assert {job.placed_on.name for job in new.jobs.all()} == {"c", "b" if lost == "head" else "a"}
    assert new.epoch > old.epoch and new.token != old.token
    attempt = only(alive.reply.attempts)
    assert attempt.attempt_id == new.pk
    held = Lease.objects.filter(holder=old.pk, released_at=None)
    assert {lease.slot.node_id for lease in held} == {dead.node_id}, "not sold again before it is known dead"
    late = dead.upload_checkpoint(old.pk, old.epoch, step=4)
    assert late.status_code == (409 if lost == "head" else 404), "the old epoch is fenced"
    dead.beat()
    assert dead.reply.attempts == [], "its ranks are ended when it is back"
    dead.beat()
    world.tick(6)
    dead.beat()
    assert not Lease.objects.filter(holder=old.pk, released_at=None).exists()


def test_a_trainer_that_crashes_by_itself_is_not_blamed_on_a_node(world: World) -> None:
    world.tick()
    world.head.exit(world.head.job("trainer"), None, code=1)
    world.head.beat()
    assert world.seen()["status"] == "RUNNING", "the other node has not reported since"
    world.beat()
    world.tick()
    assert Attempt.objects.order_by("number").first().reason == EndReason.TRAINER_CRASHED  # type: ignore[union-attr]


def test_a_crash_on_the_other_node_ends_the_attempt_on_both(world: World) -> None:
    world.other.exit(Job.objects.get(name="trainer-1").pk, EndReason.PREPARATION_FAILED, message="disk full")
    world.beat()
    world.tick()
    world.beat()
    attempt = Attempt.objects.order_by("number").first()
    assert attempt is not None and attempt.message == "trainer-1: disk full"
    assert {job.state for job in attempt.jobs.all()} == {"exited"}


def test_a_silent_node_is_shown_and_waited_for_while_nothing_else_is_free(world: World) -> None:
    world.pass_seconds(50, world.head)
    seen = world.seen()
    assert (seen["status"], seen["conditions"], seen["attempt_number"]) == ("RUNNING", ["UNRESPONSIVE"], 1)
    world.beat()
    world.tick()
    assert (world.seen()["conditions"], world.seen()["attempt_number"]) == ([], 1)


def test_a_silent_node_is_replaced_although_the_other_ranks_only_wait_for_it(world: World, node: Any) -> None:
    """As when a machine loses power: no rank sees a closed connection. The run's own slots serve its next attempt."""
    spare = node("c", slots=2, peer_address="10.0.0.3")
    for _ in range(7):
        world.pass_seconds(10, world.head, spare)
        world.head.ship_all()
    old, new = Attempt.objects.order_by("number")
    assert old.reason == EndReason.NODE_LOST
    assert {job.placed_on.name for job in new.jobs.all()} == {"a", "c"}


def test_a_drained_node_moves_the_run_after_a_checkpoint(world: World) -> None:
    drained = world.alice.call("POST", f"/pool/nodes/{world.other.node_id}/drain", {})
    assert drained.status_code == 200, drained.content
    world.tick()
    world.head.beat()
    stopping = {job.name: job.stop_asked_at is not None for job in Job.objects.all()}
    assert [name for name, asked in stopping.items() if asked] == ["trainer"], "the other ranks follow rank 0"
    attempt = Attempt.objects.get()
    assert (attempt.reason, attempt.message) == (EndReason.PREEMPTED, "b is drained")


def test_a_user_stops_rank_0_and_the_others_follow(world: World) -> None:
    assert world.alice.post(f"/runs/{world.run['id']}/stop").status_code == 202
    world.beat(world.head)
    assert Job.objects.get(name="trainer-1").stop_asked_at is None
    world.other.exit(Job.objects.get(name="trainer-1").pk, EndReason.STOPPED_BY_USER)
    for _ in range(4):
        world.beat()
        world.head.ship_all()
        world.other.ship_all()
        world.tick(10)
    assert world.seen()["status"] == "STOPPED"
    assert not Lease.objects.filter(released_at=None).exists()


def test_a_run_over_nodes_is_a_holder_on_each_of_them(world: World, clock: Any) -> None:
    holders = slot_holders("default", now=clock.now, reserved=True)
    assert {(one.id, one.node, one.slots) for one in holders} == {
        (world.run["id"], world.head.node_id, ("cpu-0", "cpu-1", "cpu-2")),
        (world.run["id"], world.other.node_id, ("cpu-0", "cpu-1")),
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"kind": "eval"}, "option_of_training"),
        ({"trainer": {"num_ranks": 1}}, "more_nodes_than_ranks"),
        ({"trainer": {"num_ranks": 4, "offload_optimizer": True}}, "offload_over_nodes"),
    ],
)
def test_what_cannot_be_spread_is_refused(alice: Any, changes: dict[str, Any], code: str) -> None:
    reply = alice.post("/runs", {"spec": alice.spec(**{"placement": {"nodes": 2}, **changes})})
    assert reply.status_code == 422, reply.content
    (error,) = reply.json()["errors"]
    assert (error["pointer"], error["code"]) == ("/placement/nodes", code)
