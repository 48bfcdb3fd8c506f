"""Two of everything at once, on real connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client

from control_plane.accounts.models import Membership, User
from control_plane.accounts.selectors import caller_in
from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointAlias
from control_plane.checkpoints.provenance import reasons_to_keep
from control_plane.checkpoints.registry import apply_retention, pin, policy_of, set_alias
from control_plane.core.api.errors import Problem
from control_plane.core.infra.locks import single_instance
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Lease, Node
from control_plane.runs.models import Attempt, Job, Run
from control_plane.runs.node_reports import apply_report
from control_plane.runs.reconciler import reconcile_runs
from control_plane.runs.scheduling import schedule_runs
from control_plane.runs.submission import create_run

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` in threads that begin together, each with a connection of its own."""
    barrier = Barrier(count)

    def begin() -> Any:
        try:
            barrier.wait(timeout=60)
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(begin) for _ in range(count)]
        return [future.result(timeout=120) for future in futures]


def test_planners_that_run_at_once_sell_every_slot_once(alice: Any, node: Any, clock: Any) -> None:
    for index in range(3):
        node(f"node-{index}", slots=2)
    for index in range(4):
        alice.run(name=f"run {index}")
    at_once(4, lambda: schedule_runs(now=clock.now))
    open_leases = Lease.objects.filter(released_at=None)
    assert open_leases.count() == open_leases.values("slot").distinct().count() == 2 * Attempt.objects.count()
    schedule_runs(now=clock.now)  # whose slot another planner sold is planned again by the next tick
    assert open_leases.count() == open_leases.values("slot").distinct().count() == 6
    assert Attempt.objects.count() == Run.objects.filter(status="STARTING").count() == 3


def test_heartbeats_stops_and_ticks_at_once_end_in_one_order(
    alice: Any, node: Any, start: Any, clock: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)

    def everything() -> None:
        machine.beat()
        reconcile_runs(now=clock.now)
        alice.post(f"/runs/{run['id']}/stop")
        schedule_runs(now=clock.now)

    at_once(4, everything)
    for _ in range(4):
        machine.beat()
        tick(25)
    assert alice.see(run["id"])["status"] == "STOPPED"
    moves = [event["data"]["after"] for event in alice.events(run["id"]) if event["kind"] == "status"]
    assert moves == ["STARTING", "RUNNING", "STOPPING", "STOPPED"]


def hear(machine: Any, now: Any) -> None:
    with transaction.atomic():
        fleet.record_heartbeat(
            Node.objects.select_for_update().get(pk=machine.node_id), machine.inventory(), now=now
        )


def lose(machine: Any, now: Any) -> None:
    Node.objects.update(last_seen_at=now - timedelta(days=1))
    fleet.update_liveness(now=now)


def release(machine: Any, now: Any) -> None:
    fleet.release_jobs(Job.objects.values_list("pk", flat=True), now=now)


def end_all_jobs(machine: Any, now: Any) -> None:
    for job in list(machine.jobs):
        machine.exit(job, None, code=1)
    apply_report(Node.objects.get(pk=machine.node_id), machine.jobs.values(), now=now)


@pytest.mark.parametrize("work", [hear, lose, release, end_all_jobs])
def test_who_needs_several_leases_holds_none_while_it_waits_for_the_first(
    alice: Any, node: Any, start: Any, clock: Any, tick: Any, work: Callable[[Any, Any], None]
) -> None:
    """So that two of them never wait for each other. The rows lie in the opposite order of their ids."""
    machine = node(slots=4)
    start(machine, rollout={"engines": 3})
    for _ in range(4):
        tick(12)  # the first ticks after a start judge nobody
    leases = list(Lease.objects.order_by("pk"))
    Lease.objects.all().delete()
    for lease, identity in zip(leases, [lease.pk for lease in leases][::-1], strict=True):
        lease.pk = identity
    Lease.objects.bulk_create(leases)
    first, *others = Lease.objects.order_by("pk")
    assert len(others) == 3
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            Lease.objects.select_for_update().get(pk=first.pk)
            meeting = in_another_thread(pool, lambda: work(machine, clock.now))
            until_it_waits(meeting)
            assert not meeting.done()
            list(Lease.objects.select_for_update(nowait=True).filter(pk__in=[lease.pk for lease in others]))
        meeting.result(timeout=60)
    assert Lease.objects.filter(released_at=None).count() == (4 if work is hear else 0)


def test_a_tick_that_runs_already_is_not_run_again(db: None) -> None:
    ran = []

    @single_instance("a tick of this test")
    def outer() -> None:
        ran.append("outer")
        at_once(2, single_instance("a tick of this test")(lambda: ran.append("inner")))

    outer()
    assert ran == ["outer"]
    outer()
    assert ran == ["outer", "outer"], "the lock is released"


def test_an_invitation_that_two_accept_at_once_lets_one_in(alice: Any) -> None:
    link = alice.post("/invitations", {"role": "editor"}).json()["link"]
    names = iter(("erin", "eve"))

    def accept() -> int:
        body = {"secret": link.partition("#")[2], "username": next(names), "password": "correct horse"}
        reply = Client().post("/api/v1/invitations/accept", body, content_type="application/json")
        status: int = reply.status_code
        return status

    assert sorted(at_once(2, accept)) == [200, 410]
    assert User.objects.filter(username__in=("erin", "eve")).count() == 1


def test_two_admins_who_demote_each_other_at_once_do_not_both_succeed(alice: Any, person: Any) -> None:
    bob = person("bob")
    pairs = iter(((alice, bob), (bob, alice)))

    def demote() -> int:
        who, whom = next(pairs)
        reply = who.call("PATCH", f"/members/{whom.user.pk}", {"role": "viewer"})
        status: int = reply.status_code
        return status

    answers = at_once(2, demote)
    assert answers.count(200) == 1 and set(answers) <= {200, 403, 409}
    assert Membership.objects.filter(project=alice.project, role="admin").count() == 1


def test_an_import_a_session_and_a_check_that_are_asked_for_at_once_are_there_once(
    alice: Any, settings: Any
) -> None:
    settings.ENVIRONMENT = replace(
        settings.ENVIRONMENT, hub_url="https://hub.example.org", project_checks=2, project_fetches=2
    )
    upload = alice.upload(b"{}\n")

    def ask(path: str, body: Any) -> list[Any]:
        headers = {"authorization": f"Bearer {alice.token}"}
        return at_once(
            3, lambda: Client().post(f"/api/v1{path}", body, content_type="application/json", headers=headers)
        )

    imports = ask("/model-imports", {"name": "m", "model": "acme/tiny"})
    assert sorted(reply.status_code for reply in imports) == [200, 200, 202]
    assert len({reply.json()["id"] for reply in imports}) == 1
    session = {"filename": "f", "purpose": "dataset", "bytes": 9, "fingerprint": "same"}
    sessions = ask("/upload-sessions", session)
    assert sorted(reply.status_code for reply in sessions) == [200, 200, 201]
    checks = ask("/dataset-validations", {"upload_id": upload})
    assert sorted(reply.status_code for reply in checks) == [202, 202, 409]


def test_one_key_with_two_bodies_at_once_is_one_answer_and_one_refusal(alice: Any) -> None:
    names = ["a", "b"]

    def ask() -> Any:
        headers = {"authorization": f"Bearer {alice.token}", "Idempotency-Key": "once"}
        body = {"name": names.pop()}
        return Client().post("/api/v1/datasets", body, content_type="application/json", headers=headers)

    replies = at_once(2, ask)
    assert sorted(reply.status_code for reply in replies) == [201, 422]
    refused = next(reply for reply in replies if reply.status_code == 422)
    assert refused.json()["code"] == "idempotency_mismatch"


def test_a_new_alias_that_two_set_at_once_is_one_alias(
    alice: Any, node: Any, start: Any, commit_checkpoint: Any
) -> None:
    run = start(node())
    attempt = Attempt.objects.get(run_id=run["id"])
    with transaction.atomic():
        for step in (1, 2):
            commit_checkpoint(run["id"], attempt.pk, step=step)
    ids = list(Checkpoint.objects.filter(run_id=run["id"]).values_list("pk", flat=True))
    wanted = list(ids)

    def move() -> Any:
        return Client().put(
            "/api/v1/checkpoint-aliases/best", {"checkpoint": wanted.pop()}, content_type="application/json",
            headers={"authorization": f"Bearer {alice.token}"},
        )  # fmt: skip

    assert [reply.status_code for reply in at_once(2, move)] == [200, 200]
    assert CheckpointAlias.objects.filter(project=alice.project, name="best").count() == 1


def test_two_invitations_that_one_user_accepts_at_once_give_the_higher_role(alice: Any, person: Any) -> None:
    guest = person("guest", team="blue")
    links = [alice.post("/invitations", {"role": role}).json()["link"] for role in ("viewer", "operator")]

    def join() -> Any:
        return Client().post(
            "/api/v1/invitations/accept", {"secret": links.pop().partition("#")[2]},
            content_type="application/json", headers={"authorization": f"Bearer {guest.token}"},
        )  # fmt: skip

    assert [reply.status_code for reply in at_once(2, join)] == [200, 200]
    assert Membership.objects.get(user=guest.user, project=alice.project).role == "operator"


# --- retention against who is about to need a checkpoint


@pytest.fixture
def old(alice: Any, clock: Any) -> Checkpoint:
    """The older of two checkpoints of an ended run, in a project that keeps the last one only."""
    made = []
    for step in (1, 2):
        blob = store.put([f"checkpoint {step}".encode()])
        made.append(
            Checkpoint.objects.create(
                project=alice.project,
                run_id="run_x",
                run_name="letters",
                attempt_id="att_x",
                attempt_number=1,
                node_id="node_1",
                step=step,
                manifest_sha256=blob.sha256,
                tar_sha256=blob.sha256,
                bytes=blob.bytes,
                state="STORED",
                created_at=clock.now,
                stored_at=clock.now,
            )
        )
    assert alice.call("PUT", "/checkpoint-retention", {"keep_last": 1}).status_code == 200
    return made[0]


def needs_it(alice: Any, clock: Any, how: str, checkpoint: Checkpoint) -> None:
    caller = caller_in(alice.user, alice.project)
    assert caller is not None
    if how == "alias":
        set_alias(caller, "prod", checkpoint, pass_gate=lambda *_: {}, now=clock.now)
    elif how == "pin":
        pin(checkpoint, True)
    else:
        create_run(caller, alice.spec(model={"checkpoint": checkpoint.pk}), now=clock.now)


def until_it_waits(other: Future[Any]) -> None:
    """Until the other transaction waits for a lock, or has ended without waiting for one."""
    deadline = time.monotonic() + 60
    while not other.done() and time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.01)
    assert other.done(), "it neither waits nor ends"


def in_another_thread(pool: ThreadPoolExecutor, work: Callable[[], Any]) -> Future[Any]:
    def begin() -> Any:
        try:
            return work()
        finally:
            connection.close()

    return pool.submit(begin)


@pytest.mark.parametrize("how", ["alias", "pin", "fork"])
def test_retention_waits_for_who_is_about_to_need_a_checkpoint_and_spares_it(
    alice: Any, clock: Any, old: Checkpoint, how: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            needs_it(alice, clock, how, old)
            freeing = in_another_thread(pool, lambda: alice.post("/checkpoint-retention/apply"))
            until_it_waits(freeing)
        assert freeing.result(timeout=60).json()["free"] == []
    old.refresh_from_db()
    assert old.state == "STORED" and store.has_blob(old.tar_sha256)


@pytest.mark.parametrize("how", ["alias", "pin", "fork"])
def test_after_retention_the_error_says_that_the_bytes_are_gone(
    alice: Any, clock: Any, old: Checkpoint, how: str
) -> None:
    policy, _ = policy_of(alice.project)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            apply_retention(alice.project, policy, reasons_to_keep, now=clock.now)
            asking = in_another_thread(pool, lambda: needs_it(alice, clock, how, old))
            until_it_waits(asking)
        with pytest.raises(Problem) as refusal:
            asking.result(timeout=60)
    assert refusal.value.code == "deleted"
    assert not Run.objects.exists() and not CheckpointAlias.objects.exists()
    assert not store.has_blob(old.tar_sha256)
