"""Leases and clocks (SEMANTICS section 7): whose silence it was, and what may be done about it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from control_plane.fleet.liveness import MAX_CHECK_GAP, ORPHAN_MARGIN, Timeouts, classify, outage_grace
from control_plane.fleet.models import Lease, Liveness, Node
from control_plane.runs.models import Attempt, Job
from oolong.contracts.agent import PROTOCOL, HeartbeatRequest
from oolong.contracts.lifecycle import EndReason, JobState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CLOCKS = Timeouts(lease=timedelta(seconds=45), orphan=timedelta(minutes=75))


@pytest.mark.parametrize(
    ("silence", "liveness"),
    [
        (timedelta(seconds=45), Liveness.READY),
        (timedelta(seconds=46), Liveness.UNRESPONSIVE),
        (CLOCKS.orphan + ORPHAN_MARGIN, Liveness.UNRESPONSIVE),
        (CLOCKS.orphan + ORPHAN_MARGIN + timedelta(seconds=1), Liveness.LOST),
    ],
)
def test_silence_is_classified_by_two_clocks(silence: timedelta, liveness: Liveness) -> None:
    assert classify(NOW - silence, now=NOW, suspended_until=None, timeouts=CLOCKS) == liveness


def test_nobody_is_judged_while_judgement_is_suspended() -> None:
    ages = NOW - timedelta(days=1)
    assert (
        classify(ages, now=NOW, suspended_until=NOW + timedelta(seconds=1), timeouts=CLOCKS) == Liveness.READY
    )
    assert classify(ages, now=NOW, suspended_until=NOW, timeouts=CLOCKS) == Liveness.LOST


@pytest.mark.parametrize("silent", ["swept_at", "receiver_at"])
@pytest.mark.parametrize("gap", [None, MAX_CHECK_GAP + timedelta(seconds=1)])
def test_a_gap_of_our_own_suspends_judgement_for_one_lease(silent: str, gap: timedelta | None) -> None:
    recent: dict[str, Any] = {
        "swept_at": NOW - timedelta(seconds=2),
        "receiver_at": NOW - timedelta(seconds=3),
    }
    recent[silent] = None if gap is None else NOW - gap
    until = outage_grace(now=NOW, suspended_until=None, timeouts=CLOCKS, **recent)
    assert until == NOW + CLOCKS.lease


def test_without_a_gap_the_suspension_runs_out() -> None:
    before = NOW - timedelta(seconds=1)
    assert (
        outage_grace(now=NOW, swept_at=NOW, receiver_at=NOW, suspended_until=before, timeouts=CLOCKS)
        == before
    )


@pytest.mark.parametrize("ticks_go_on", [True, False], ids=["only the web process", "everything"])
def test_a_control_plane_down_for_ten_minutes_costs_twenty_runs_nothing(
    alice: Any, node: Any, tick: Any, clock: Any, ticks_go_on: bool
) -> None:
    """Either all of it is down, or the web process alone while the ticks go on."""
    machines = [node(f"node-{index}", slots=10) for index in range(4)]
    runs = [alice.run(name=f"run {index}") for index in range(20)]
    tick()
    for _ in range(2):
        for machine in machines:
            machine.beat()
    assert {alice.see(run["id"])["status"] for run in runs} == {"RUNNING"}
    started = {job.pk: job.observed_at for job in Job.objects.all()}

    if ticks_go_on:
        for _ in range(12):
            tick(50, web_alive=False)
    else:
        clock.forward(600)  # nothing ran: no tick, no heartbeat
    for _ in range(3):  # the ticks are back before the nodes are
        tick(5)
    for machine in machines:
        machine.beat()
        assert all(job.state == JobState.RUNNING for job in machine.jobs.values())
        assert not any(job.stop for attempt in machine.reply.attempts for job in attempt.jobs)
    for _ in range(3):
        for machine in machines:
            machine.beat()
        for _ in range(3):
            tick(12)

    assert {alice.see(run["id"])["status"] for run in runs} == {"RUNNING"}
    assert Attempt.objects.count() == 20
    assert set(Job.objects.values_list("pk", flat=True)) == set(started)
    assert set(Node.objects.values_list("liveness", flat=True)) == {Liveness.READY}
    assert not any("answer" in event["message"] for run in runs[:2] for event in alice.events(run["id"]))


def silence(machine: Any, others: list[Any], tick: Any, seconds: int) -> None:
    for _ in range(seconds // 12):
        for other in others:
            other.beat()
        tick(12)


def test_a_silent_node_makes_its_run_unresponsive_and_its_return_heals_it(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    silence(machine, [], tick, 120)
    assert Node.objects.get().liveness == Liveness.UNRESPONSIVE
    seen = alice.see(run["id"])
    assert (seen["status"], seen["conditions"]) == ("RUNNING", ["UNRESPONSIVE"])
    machine.beat()
    tick()
    seen = alice.see(run["id"])
    assert (seen["status"], seen["conditions"], seen["attempt_number"]) == ("RUNNING", [], 1)


def test_a_run_on_a_silent_node_moves_when_another_node_has_room(
    alice: Any, node: Any, start: Any, tick: Any, commit_checkpoint: Any
) -> None:
    silent = node("silent")
    run = start(silent)
    first = Attempt.objects.get()
    commit_checkpoint(run["id"], first.pk, step=20)
    silent.upload_checkpoint(first.pk, first.epoch, step=20)
    other = node("other")
    silence(silent, [other], tick, 120)
    second = Attempt.objects.get(number=2)
    assert (second.node_id, second.epoch) == (other.node_id, 2)
    assert second.resume_checkpoint is not None
    other.beat()
    other.beat()
    assert alice.see(run["id"])["status"] == "RUNNING"
    assert Lease.objects.filter(slot__node=silent.node_id, released_at=None).count() == 2, "not sold again"


def test_slots_of_a_silent_node_are_sold_again_once_it_reports_the_job_gone(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    silent, other = node("silent"), None
    start(silent)
    other = node("other")
    silence(silent, [other], tick, 120)
    held = Lease.objects.filter(slot__node=silent.node_id, released_at=None)
    assert held.count() == 2
    silent.beat()  # it answers, and its jobs still run: the old attempt is not named, so it ends them
    assert held.count() == 2
    silent.beat()
    assert held.count() == 0


def test_slots_of_a_silent_node_are_sold_again_when_it_comes_back_rebooted(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    run = start(machine)
    silence(machine, [], tick, 120)
    machine.boot_id = "boot-2"
    for job in list(machine.jobs):  # its agent has a record of each, and finds no process
        machine.exit(job, EndReason.NODE_LOST)
    machine.beat()
    assert not Lease.objects.filter(released_at=None).exists()
    tick()
    tick()
    run = alice.see(run["id"])
    assert (run["status"], run["attempt_number"]) == ("STARTING", 2)


def test_a_late_report_from_before_a_reboot_releases_no_slot(
    alice: Any, node: Any, start: Any, tick: Any
) -> None:
    machine = node()
    before = msgspec.json.encode(
        HeartbeatRequest(inventory=machine.inventory(), jobs=[], started_at=0.0, protocol=PROTOCOL)
    )
    machine.boot_id = "boot-2"
    machine.beat()
    run = start(machine)
    assert machine.post("/heartbeat", before).status_code == 200
    tick(6)
    assert Lease.objects.filter(released_at=None).count() == 2
    machine.beat()
    tick(6)
    machine.beat()
    assert Lease.objects.filter(released_at=None).count() == 2
    assert alice.see(run["id"])["status"] == "RUNNING"


def test_slots_of_a_silent_node_are_sold_again_after_orphan_time_and_a_margin(
    alice: Any, node: Any, start: Any, tick: Any, clock: Any
) -> None:
    machine = node()
    run = start(machine)
    for _ in range(4):
        tick(12)  # the first ticks after a start judge nobody
    Node.objects.update(last_seen_at=clock.now - (CLOCKS.orphan + ORPHAN_MARGIN - timedelta(seconds=13)))
    tick(12)
    assert Node.objects.get().liveness == Liveness.UNRESPONSIVE
    assert Lease.objects.filter(released_at=None).count() == 2
    tick(2)
    assert Node.objects.get().liveness == Liveness.LOST
    assert not Lease.objects.filter(released_at=None).exists()
    tick()
    assert alice.see(run["id"])["status"] == "QUEUED"


def test_a_stale_epoch_is_fenced(alice: Any, node: Any, start: Any, tick: Any) -> None:
    silent = node("silent")
    start(silent)
    first = Attempt.objects.get()
    other = node("other")
    silence(silent, [other], tick, 120)
    refused = silent.upload_checkpoint(first.pk, first.epoch, step=30)
    assert (refused.status_code, refused.json()["code"]) == (409, "stale_epoch")
    second = Attempt.objects.get(number=2)
    wrong = other.upload_checkpoint(second.pk, 1, step=30)
    assert (wrong.status_code, wrong.json()["code"]) == (409, "stale_epoch")


def test_a_slot_cannot_be_leased_twice(alice: Any, node: Any, start: Any, clock: Any) -> None:
    from django.db import IntegrityError, transaction

    start(node())
    lease = Lease.objects.first()
    assert lease is not None
    lease.pk = "lease_other"
    with pytest.raises(IntegrityError), transaction.atomic():
        lease.save(force_insert=True)
