"""Engines of a run on other nodes than its trainer's join idle slots there, and may be lost without harm."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.fleet.models import Lease, Liveness, Node
from control_plane.runs.models import Attempt, Job
from control_plane.runs.remote_engines import RETRY_AFTER, is_avoided
from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.lifecycle import EndReason
from oolong.system.pinned_tls import client_context, server_context


@dataclass
class World:
    """A run whose trainer is on `home`, with one engine there and one on `away`."""

    alice: Any
    home: Any
    away: Any
    run: Any
    tick: Callable[..., None]

    def beat(self, *nodes: Any) -> None:
        """Twice: a node reports what it started with the heartbeat after."""
        for node in [*(nodes or (self.home, self.away))] * 2:
            node.beat()

    def want(self, engines: int) -> None:
        wanted = self.alice.post(
            f"/runs/{self.run['id']}/runtime", {"changes": {"rollout": {"engines": engines}}}
        )
        assert wanted.status_code == 202, wanted.content

    def seen(self) -> Any:
        return self.alice.see(self.run["id"])

    def messages(self) -> list[str]:
        return [event["message"] for event in self.alice.events(self.run["id"]) if event["kind"] == "engines"]

    def nodes_of_engines(self) -> dict[str, str]:
        jobs = self.alice.get(f"/runs/{self.run['id']}/jobs").json()["data"]
        return {
            job["name"]: job["node"]["name"]
            for job in jobs
            if job["kind"] == "rollout" and job["state"] != "exited"
        }

    def remote(self) -> Job:
        return Job.objects.exclude(node=None).get()


@pytest.fixture
def world(alice: Any, node: Any, start: Any, tick: Any) -> World:
    home, away = node("home", peer_address="10.0.0.1"), node("away", slots=0, peer_address="10.0.0.2")
    world = World(alice, home, away, start(home), tick)
    away.slots = 2
    away.beat()
    world.want(2)
    tick()
    world.beat()
    return world


def only(attempts: list[DesiredAttempt]) -> DesiredAttempt:
    (attempt,) = attempts
    return attempt


def test_an_idle_slot_of_another_node_joins_and_the_run_shows_where(world: World) -> None:
    assert world.nodes_of_engines() == {"rollout-0": "home", "rollout-1": "away"}
    assert world.messages() == ["rollout-1 joins on cpu-0 of away"]
    assert world.seen()["conditions"] == []
    assert world.remote().state == "running"
    assert Lease.objects.get(job=world.remote().pk).slot.node_id == world.away.node_id


def test_each_node_gets_its_part_of_the_attempt(world: World) -> None:
    home, away = only(world.home.reply.attempts), only(world.away.reply.attempts)
    assert [job.name for job in away.jobs] == ["rollout-1"]
    assert "rollout-1" not in [job.name for job in home.jobs]
    assert (home.trainer_node, away.listener) == (None, None), "the key stays on the trainer's node"
    assert home.listener is not None and away.trainer_node is not None
    assert (home.listener.address, away.trainer_node.address) == ("10.0.0.1", "10.0.0.1")
    assert away.trainer_node.ports == {name: home.ports[name] for name in ("controller", "reward", "weights")}
    assert away.ports == {"engine-1": away.jobs[0].engine_port}
    assert (away.token, away.epoch) == (home.token, home.epoch)


def test_the_certificate_is_the_attempts_own_and_its_key_ends_with_it(world: World) -> None:
    attempt = Attempt.objects.get()
    server_context(attempt.certificate, attempt.private_key)  # key and certificate belong together
    assert client_context(attempt.certificate).verify_mode == ssl.CERT_REQUIRED
    world.alice.post(f"/runs/{world.run['id']}/cancel")
    for _ in range(3):
        world.beat()
        world.home.ship_all()
        world.away.ship_all()
        world.tick()
    assert world.seen()["status"] == "STOPPED"
    attempt.refresh_from_db()
    assert (attempt.private_key, Lease.objects.filter(released_at=None).count()) == ("", 0)


def test_the_other_node_may_read_the_inputs_and_ship_the_telemetry(world: World, node: Any) -> None:
    dataset = only(world.away.reply.attempts).dataset.sha256
    assert world.away.get(f"/artifacts/{dataset}").status_code == 200
    stranger = node("stranger", slots=1, peer_address="10.0.0.3")
    assert stranger.get(f"/artifacts/{dataset}").status_code == 404


@pytest.mark.parametrize("of_home", ["", "10.0.0.1"])
def test_no_engine_joins_where_the_nodes_do_not_reach_each_other(
    alice: Any, node: Any, start: Any, tick: Any, of_home: str
) -> None:
    home = node("home", peer_address=of_home)
    world = World(alice, home, None, start(home), tick)
    node("away", slots=1, peer_address="" if of_home else "10.0.0.2")
    world.want(2)
    tick()
    assert world.nodes_of_engines() == {"rollout-0": "home"}
    assert world.seen()["conditions"] == ["ENGINES_WAITING"]


def test_nodes_of_another_network_or_device_are_left_out(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    home = node("home", peer_address="10.0.0.1")
    world = World(alice, home, None, start(home), tick)
    node("gpus", slots=1, peer_address="10.0.0.2", device="cuda")
    other = node("other", slots=1, peer_address="10.1.0.2")
    Node.objects.filter(pk=other.node_id).update(peer_network="elsewhere")
    world.want(2)
    tick()
    assert world.nodes_of_engines() == {"rollout-0": "home"}


def test_nodes_that_the_run_excludes_are_left_out(alice: Any, node: Any, start: Any, tick: Any) -> None:
    home = node("home", peer_address="10.0.0.1")
    away = node("away", slots=1, peer_address="10.0.0.2")
    world = World(alice, home, away, start(home, placement={"exclude_nodes": ["away"]}), tick)
    world.want(2)
    tick()
    assert world.nodes_of_engines() == {"rollout-0": "home"}


def test_slots_of_the_own_node_come_first(alice: Any, node: Any, start: Any, tick: Any) -> None:
    away = node("a-way", slots=4, peer_address="10.0.0.2")
    Node.objects.filter(pk=away.node_id).update(intent="CORDONED")
    home = node("home", slots=3, peer_address="10.0.0.1")
    world = World(alice, home, away, start(home), tick)
    Node.objects.filter(pk=away.node_id).update(intent="ACTIVE")
    world.want(3)
    tick()
    assert world.nodes_of_engines() == {"rollout-0": "home", "rollout-1": "home", "rollout-2": "a-way"}


def test_a_run_in_the_queue_reclaims_the_slot_and_the_run_continues(world: World) -> None:
    waits = world.alice.run(name="waits")  # two slots on one node
    world.tick()
    assert world.messages()[-1] == "rollout-1 stops: a run in the queue needs its slot"
    world.beat(world.away)
    world.away.ship_all()
    world.tick()
    assert world.alice.see(waits["id"])["status"] == "STARTING"
    seen = world.seen()
    assert (seen["status"], seen["conditions"]) == ("RUNNING", ["ENGINES_WAITING"])


def test_an_engine_that_fails_on_another_node_costs_the_run_nothing(world: World) -> None:
    remote = world.remote()
    world.away.exit(remote.pk, EndReason.CONTROLLER_CRASHED, code=1, message="the controller did not answer")
    world.beat()
    assert (world.seen()["status"], world.seen()["attempt_number"]) == ("RUNNING", 1)
    assert world.messages()[-1] == (
        "rollout-1 on away left: the controller did not answer; its groups continue on other engines"
    )
    assert world.away.reply.attempts == [], "nothing is left for the node to do"
    world.tick()
    assert world.nodes_of_engines() == {"rollout-0": "home"}, "the node is not tried again at once"
    world.tick(RETRY_AFTER.total_seconds() / 2)
    world.beat()
    world.tick()
    assert world.nodes_of_engines() == {"rollout-0": "home"}
    world.beat()
    world.tick(RETRY_AFTER.total_seconds() / 2)
    assert world.nodes_of_engines() == {"rollout-0": "home", "rollout-2": "away"}


def test_each_failure_doubles_the_time_until_a_node_is_used_again() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert not is_avoided([], now=at)
    waits = []
    for count in range(1, 9):
        waits.append(
            next(m for m in range(200) if not is_avoided([at] * count, now=at + timedelta(minutes=m)))
        )
    assert waits == [5, 10, 20, 40, 80, 120, 120, 120]


def test_a_silent_node_does_not_stop_the_run_and_another_one_replaces_it(world: World, node: Any) -> None:
    spare = node("spare", slots=1, peer_address="10.0.0.3")
    for _ in range(5):
        world.tick(10)
        world.beat(world.home, spare)
    assert Node.objects.get(pk=world.away.node_id).liveness == Liveness.UNRESPONSIVE
    seen = world.seen()
    assert (seen["status"], seen["attempt_number"], seen["conditions"]) == (
        "RUNNING",
        1,
        ["ENGINES_UNRESPONSIVE"],
    )
    assert world.nodes_of_engines() == {"rollout-0": "home", "rollout-1": "away", "rollout-2": "spare"}
    assert Lease.objects.filter(slot__node=world.away.node_id, released_at=None).count() == 1, (
        "not proven dead"
    )

    world.beat()  # it was paused, and continues
    world.tick()
    assert world.seen()["conditions"] == []
    world.beat(world.home, world.away, spare)
    assert world.nodes_of_engines() == {"rollout-0": "home", "rollout-1": "away"}, "the surplus leaves again"


def test_a_node_that_was_paused_continues_with_its_engine(world: World) -> None:
    for _ in range(5):
        world.tick(10)
        world.beat(world.home)
    assert world.seen()["conditions"] == ["ENGINES_UNRESPONSIVE", "ENGINES_WAITING"]
    world.beat()
    world.tick()
    assert (world.seen()["conditions"], world.seen()["attempt_number"]) == ([], 1)
    assert world.nodes_of_engines() == {"rollout-0": "home", "rollout-1": "away"}
    assert world.remote().incarnation == 0, "the same process"


def test_a_lost_node_releases_its_engine_and_the_run_never_fails(world: World, clock: Any) -> None:
    Node.objects.filter(pk=world.away.node_id).update(last_seen_at=clock.now - timedelta(hours=3))
    for _ in range(6):
        world.tick(10)
        world.beat(world.home)
    assert Node.objects.get(pk=world.away.node_id).liveness == Liveness.LOST
    job = world.remote()
    assert (job.state, job.reason) == ("exited", EndReason.NODE_LOST)
    seen = world.seen()
    assert (seen["status"], seen["attempt_number"], seen["conditions"]) == ("RUNNING", 1, ["ENGINES_WAITING"])
    assert not Lease.objects.filter(slot__node=world.away.node_id, released_at=None).exists()


def test_a_run_ends_although_a_remote_engine_is_silent(world: World) -> None:
    for _ in range(5):
        world.tick(10)
        world.beat(world.home)
    world.alice.post(f"/runs/{world.run['id']}/cancel")
    for _ in range(3):
        world.beat(world.home)
        world.home.ship_all()
        world.tick()
    seen = world.seen()
    assert (seen["status"], seen["conditions"]) == ("STOPPED", ["GAP"])
    assert Lease.objects.filter(released_at=None).count() == 1, "of the silent node, until it is known dead"
    world.beat(world.away)  # it is back, and its engine is not wanted any more
    world.beat(world.away)
    world.tick()
    assert not Lease.objects.filter(released_at=None).exists()


def test_a_drained_node_loses_its_remote_engines_at_once(world: World) -> None:
    drained = world.alice.call("POST", f"/pool/nodes/{world.away.node_id}/drain", {})
    assert drained.status_code == 200, drained.content
    world.tick()
    world.beat()
    assert world.messages()[-1] == "rollout-1 stops: away is drained"
    assert world.seen()["status"] == "RUNNING"
    assert world.nodes_of_engines() == {"rollout-0": "home"}
    assert Node.objects.get(pk=world.away.node_id).status == "DRAINED"


def test_a_revoked_node_loses_its_remote_engines_at_once(world: World) -> None:
    assert world.alice.call("POST", f"/pool/nodes/{world.away.node_id}/revoke", {}).status_code == 200
    world.tick()
    assert (world.remote().state, world.remote().message) == ("exited", "away was revoked")
    assert world.seen()["status"] == "RUNNING"


def test_the_loss_of_the_trainers_node_starts_a_new_attempt_and_ends_the_remote_engine(
    world: World, clock: Any
) -> None:
    Node.objects.filter(pk=world.home.node_id).update(last_seen_at=clock.now - timedelta(hours=3))
    for _ in range(6):
        world.tick(10)
        world.beat(world.away)
        world.away.ship_all()
    old, new = Attempt.objects.order_by("number")
    assert (old.status, old.reason) == ("ENDED", EndReason.NODE_LOST)
    assert new.node_id == world.away.node_id and new.token != old.token and new.certificate != old.certificate
    attempt = only(world.away.reply.attempts)
    assert attempt.attempt_id == new.pk, "the engine of the old epoch is ended"
    assert not Lease.objects.filter(holder=old.pk, released_at=None).exists()


def test_fewer_engines_stop_the_remote_one(world: World) -> None:
    world.want(1)
    world.beat()
    assert world.messages()[-1] == "rollout-1 stops; 1 continue"
    world.tick()
    assert world.nodes_of_engines() == {"rollout-0": "home"}
    assert not Lease.objects.filter(slot__node=world.away.node_id, released_at=None).exists()
