"""A pool under random events: submissions, heartbeats, crashes, drains, reservations and preemptions.

The services, the API and PostgreSQL are real. Nodes are simulated, and each one knows what runs on its slots: a node
that has to start a job on a slot where another job of its has not ended proves that the slot was sold twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import hypothesis
import msgspec
from django.db import connection, transaction
from django.db.models import Count
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from control_plane.core.infra.clock import rfc3339
from control_plane.fleet import pools
from control_plane.fleet import services as fleet
from control_plane.fleet.models import Lease, Node, Quota, Watch
from control_plane.fleet.web_liveness import record_alive
from control_plane.runs import telemetry_hooks
from control_plane.runs.lease_reaper import reap_leases
from control_plane.runs.models import Attempt, Job, Run, RunEvent
from control_plane.runs.reconciler import reconcile_runs
from control_plane.runs.scheduling import schedule_runs
from oolong.contracts.agent import PROTOCOL, HeartbeatReply, HeartbeatRequest
from oolong.contracts.lifecycle import ENDED, RUN_TRANSITIONS, AttemptStatus, EndReason, JobState, RunStatus
from oolong.contracts.telemetry import CheckpointLine
from tests.unit.control_plane.conftest import Clock, Person, SimulatedNode, make_person, ready_model

SLOTS = {"north": 2, "south": 3}
QUOTAS = {"red": (2, 4), "blue": (2, None)}  # nominal slots, limit
MOST_RUNS = 6  # that have not ended
PHASES = [Phase.generate]
SILENCE = timedelta(days=1)  # longer than OOLONG_ORPHAN_SECONDS and its margin
TEAMS = st.sampled_from(sorted(QUOTAS))
NODES = st.sampled_from(sorted(SLOTS))
KINDS: dict[str, dict[str, Any]] = {
    "rl": {},
    "rl with two engines": {"rollout": {"engines": 2}},
    "eval": {"kind": "eval", "dataset": {"version": "sums@1", "split": "eval"}, "evaluation": {"prompts": 8}},
    "over two nodes": {"trainer": {"num_ranks": 3}, "placement": {"nodes": 2}},
}
_OVERLAPPING = """
    SELECT count(*) FROM fleet_lease a JOIN fleet_lease b ON a.slot_id = b.slot_id AND a.id < b.id
    WHERE tstzrange(a.granted_at, a.released_at) && tstzrange(b.granted_at, b.released_at)
"""


class PhysicalNode(SimulatedNode):
    """Knows which job runs on which slot, and keeps the messages that it sent."""

    def __init__(self, name: str, slots: int, peer_address: str) -> None:
        super().__init__(name, slots, peer_address=peer_address)
        self.slots_of: dict[str, tuple[str, ...]] = {}  # job → its slots
        self.sent: list[bytes] = []
        self.is_up = True  # its agent runs; jobs outlive an agent

    def beat(self) -> HeartbeatReply:
        body = HeartbeatRequest(
            inventory=self.inventory(), jobs=list(self.jobs.values()), started_at=0.0, protocol=PROTOCOL
        )
        self.sent = [*self.sent[-4:], msgspec.json.encode(body)]
        reply = self.deliver(self.sent[-1])
        self._assert_slots_are_free(reply)
        self._follow(reply)
        return reply

    def deliver(self, message: bytes) -> HeartbeatReply:
        """Send a message and lose the reply."""
        answer = self.post("/heartbeat", message)
        assert answer.status_code == 200, answer.content
        return msgspec.json.decode(answer.content, type=HeartbeatReply)

    def lose_power(self) -> None:
        """When it is back, its agent has a record of each job, and finds no process."""
        self.is_up = False
        for job in list(self.jobs):
            self.exit(job, EndReason.NODE_LOST)
        self.boot_id += "-again"

    def _assert_slots_are_free(self, reply: HeartbeatReply) -> None:
        running = {
            slot: job
            for job, observed in self.jobs.items()
            if observed.state != JobState.EXITED
            for slot in self.slots_of[job]
        }
        for attempt in reply.attempts:
            for job in attempt.jobs:
                if job.job_id in self.jobs:
                    continue
                for slot in job.slots:
                    assert slot not in running, (
                        f"{job.name} is to start on {slot}, where {running[slot]} runs"
                    )
                    running[slot] = job.job_id
                self.slots_of[job.job_id] = tuple(job.slots)


class World:
    """Two nodes, and two teams with quotas; each example begins with it."""

    def __init__(self, alice: Person, clock: Clock) -> None:
        bob = make_person("bob", team="blue")
        bob.dataset()
        ready_model(bob)
        self.people = {"red": alice, "blue": bob}
        self.clock, self.began = clock, clock.now
        for team, (nominal, limit) in QUOTAS.items():
            Quota.objects.update_or_create(
                pool=pools.default_pool(), team=self.people[team].project.team,
                defaults={"nominal_slots": nominal, "limit_slots": limit},
            )  # fmt: skip
        self.enrolled = {name: self._enroll(name) for name in SLOTS}
        record_alive()
        reap_leases(now=clock.now)
        Watch.objects.update(suspended_until=None)  # the first checks after a start would judge no node

    def nodes(self) -> dict[str, PhysicalNode]:
        found = {}
        for name, enrolled in self.enrolled.items():
            found[name] = PhysicalNode(name, SLOTS[name], enrolled.peer_address)
            found[name].credential, found[name].node_id = enrolled.credential, enrolled.node_id
            found[name].beat()
        return found

    def _enroll(self, name: str) -> PhysicalNode:
        token, _ = fleet.create_join_token(pools.default_pool(), now=self.clock.now)
        node = PhysicalNode(name, SLOTS[name], f"10.0.0.{SLOTS[name]}")
        row, node.credential = fleet.enroll(
            token=token, name=name, inventory=node.inventory(), now=self.clock.now
        )
        node.node_id = row.pk
        return node


class PoolMachine(RuleBasedStateMachine):
    world: World  # set by `check`

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.people = self.world.clock, self.world.people
        self.clock.now = self.world.began
        self.example = ExitStack()
        self.example.enter_context(_rolled_back())
        self.nodes = self.world.nodes()
        self.ends: dict[str, tuple[str, str, Any]] = {}  # run → status, reason and time of its end
        self.events = 0  # ID of the last one that was looked at
        self.status: dict[str, str] = {}  # run → status after its last event

    def teardown(self) -> None:
        try:
            self._end_everything()
        finally:
            self.example.close()

    # --- teams

    @rule(team=TEAMS, kind=st.sampled_from(sorted(KINDS)), priority=st.sampled_from([100, 500]))
    def submit(self, team: str, kind: str, priority: int) -> None:
        if Run.objects.exclude(status__in=ENDED).count() < MOST_RUNS:
            placement = {**KINDS[kind].get("placement", {}), "priority": priority}
            self.people[team].run(**{**KINDS[kind], "placement": placement})

    @rule(data=st.data(), action=st.sampled_from(["stop", "cancel", "pause", "resume", "force-stop"]))
    def act_on_a_run(self, data: st.DataObject, action: str) -> None:
        """Whatever its status: what is impossible is refused."""
        if (run := self._any_run(data)) is not None:
            reply = self._owner(run).post(f"/runs/{run.pk}/{action}")
            assert reply.status_code in (200, 202, 409), reply.content

    @rule(data=st.data(), engines=st.integers(1, 4))
    def change_engines(self, data: st.DataObject, engines: int) -> None:
        if (run := self._any_run(data, kind="rl")) is not None:
            body = {"changes": {"rollout": {"engines": engines}}}
            reply = self._owner(run).post(f"/runs/{run.pk}/runtime", body)
            assert reply.status_code in (202, 409, 422), reply.content

    # --- pool admins

    @rule(name=NODES, action=st.sampled_from(["cordon", "drain", "drain in a minute", "quarantine"]))
    def close_node(self, name: str, action: str) -> None:
        verb, *deadline = action.split(maxsplit=1)
        body: dict[str, Any] = {"reason": "somebody looks at it"} if verb == "quarantine" else {}
        self._manage(name, verb, {"deadline_seconds": 60} if deadline else body)

    @rule(name=NODES)
    def open_node(self, name: str) -> None:
        self._manage(name, "uncordon", {})
        self._manage(name, "release", {})

    @rule(team=TEAMS, slots=st.integers(1, 3), starts_in=st.sampled_from([0, 60]))
    def reserve(self, team: str, slots: int, starts_in: int) -> None:
        starts_at = rfc3339(self.clock.now + timedelta(seconds=starts_in))
        body = {"team": team, "slots": slots, "starts_at": starts_at, "duration_seconds": 120}
        reply = self.people["red"].post("/pools/default/reservations", body)
        assert reply.status_code in (201, 409, 422), reply.content

    # --- nodes

    @rule(name=NODES)
    def beat(self, name: str) -> None:
        if self.nodes[name].is_up:
            self.nodes[name].beat()

    @rule(name=NODES)
    def ship(self, name: str) -> None:
        self.nodes[name].ship_all()

    @rule(name=NODES, times=st.integers(1, 3))
    def repeat_a_message(self, name: str, times: int) -> None:
        """The newest one comes again: its first reply was lost."""
        for _ in range(times):
            self.nodes[name].deliver(self.nodes[name].sent[-1])

    @rule(name=NODES, data=st.data())
    def deliver_an_old_message(self, name: str, data: st.DataObject) -> None:
        """It was delayed, and overtaken by others. The next one is on its way."""
        node = self.nodes[name]
        node.deliver(data.draw(st.sampled_from(node.sent)))
        if node.is_up:
            node.beat()

    @rule(name=NODES)
    def stop_agent(self, name: str) -> None:
        self.nodes[name].is_up = False

    @rule(name=NODES)
    def start_agent(self, name: str) -> None:
        self.nodes[name].is_up = True
        self.nodes[name].beat()

    @rule(name=NODES)
    def lose_power(self, name: str) -> None:
        self.nodes[name].lose_power()

    @rule(name=NODES)
    def be_silent_for_long(self, name: str) -> None:
        """So long that the node has ended its own jobs, as it does when it hears nothing."""
        node = self.nodes[name]
        if node.is_up:
            return
        for job in list(node.jobs):
            node.exit(job, EndReason.ORPHANED, code=1)
        Node.objects.filter(pk=node.node_id).update(last_seen_at=self.clock.now - SILENCE)
        self.pass_time(1)

    @rule(data=st.data(), code=st.sampled_from([1, -9]))
    def crash_a_job(self, data: st.DataObject, code: int) -> None:
        running = sorted((node.name, job) for node in self.nodes.values() for job in self._running(node))
        if running:
            name, job = data.draw(st.sampled_from(running))
            self.nodes[name].exit(job, None, code=code)

    @rule(data=st.data(), final=st.booleans())
    def save_a_checkpoint(self, data: st.DataObject, final: bool) -> None:
        """And store it; with a final one the attempt is done."""
        training = [
            job
            for job in Job.objects.filter(
                name="trainer", state=JobState.RUNNING, attempt__run__status="RUNNING"
            )
            .select_related("attempt__run", "attempt__node")
            .order_by("pk")
            if self._runs(job)
        ]
        if not training:
            return
        job = data.draw(st.sampled_from(training))
        attempt, node = job.attempt, self.nodes[job.attempt.node.name]
        step = attempt.run.train_step + 10
        content = f"checkpoint {attempt.pk} {step}".encode()
        line = CheckpointLine(
            at=0.0, step=step, directory="/x", bytes=1, final=final,
            manifest_sha256=hashlib.sha256(content + b"manifest").hexdigest(),
        )  # fmt: skip
        with transaction.atomic():
            telemetry_hooks.record_checkpoint_line(job, line)
        stored = node.upload_checkpoint(attempt.pk, attempt.epoch, step=step, final=final)
        assert stored.status_code in (200, 201, 409), stored.content
        if final:
            for one in attempt.jobs.filter(kind__in=["trainer", "controller"]).select_related("node"):
                host = self.nodes[one.placed_on.name]
                if one.pk in host.jobs:
                    host.exit(one.pk, EndReason.COMPLETED)

    # --- time

    @rule(seconds=st.sampled_from([1, 6, 12]))
    def pass_time(self, seconds: float) -> None:
        """The ticks of the worker."""
        now = self.clock.forward(seconds)
        record_alive()
        reap_leases(now=now)
        reconcile_runs(now=now)
        schedule_runs(now=now)
        unexplained = Run.objects.filter(status=RunStatus.QUEUED, pending_reason="")
        assert not unexplained.exists(), f"{list(unexplained.values_list('pk'))} wait without a reason"

    @rule(rounds=st.integers(1, 4))
    def pass_time_with_reports(self, rounds: int) -> None:
        """Of the agents that run. Four rounds are longer than a node's lease."""
        for _ in range(rounds):
            for node in self.nodes.values():
                if node.is_up:
                    node.beat()
            self.pass_time(12)

    # --- what holds after each event

    @invariant()
    def no_slot_is_sold_twice(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_OVERLAPPING)
            assert cursor.fetchone() == (0,)

    @invariant()
    def every_transition_is_in_the_table(self) -> None:
        fresh = RunEvent.objects.filter(pk__gt=self.events).order_by("pk")
        for event in fresh:
            self.events = event.pk
            if event.kind != "status":
                continue
            before, after = event.data["before"], event.data["after"]
            assert after in RUN_TRANSITIONS[RunStatus(before)], f"{before} → {after}"
            assert self.status.get(event.run_id, before) == before, f"{event.run_id}: a transition is missing"
            self.status[event.run_id] = after

    @invariant()
    def ended_runs_stay_as_they_are(self) -> None:
        ended = {
            run.pk: (run.status, run.reason, run.ended_at) for run in Run.objects.filter(status__in=ENDED)
        }
        for run, end in self.ends.items():
            assert ended.get(run) == end, f"{run} ended with {end} and is now {ended.get(run)}"
        self.ends = ended

    @invariant()
    def no_preempted_run_fails(self) -> None:
        failed = Run.objects.filter(status=RunStatus.FAILED)
        assert not failed.filter(reason=EndReason.PREEMPTED).exists()
        for run in failed:
            last = run.attempts.order_by("-number").first()
            assert last is None or last.reason != EndReason.PREEMPTED, f"{run.pk} was preempted and failed"

    @invariant()
    def teams_are_within_their_limits(self) -> None:
        held = Lease.objects.filter(released_at=None).values_list("team__name").annotate(Count("pk"))
        for team, slots in held:
            limit = QUOTAS[team][1]
            assert limit is None or slots <= limit, f"{team} holds {slots} slots of at most {limit}"

    @invariant()
    def slots_are_held_for_jobs_that_may_live(self) -> None:
        jobs = Lease.objects.filter(released_at=None).values("job")
        assert not Job.objects.filter(pk__in=jobs, state=JobState.EXITED).exists(), "a slot leaks"
        active = Attempt.objects.exclude(status=AttemptStatus.ENDED).values("run")
        resting = [RunStatus.QUEUED, RunStatus.PAUSED, *ENDED]
        assert not Run.objects.filter(pk__in=active, status__in=resting).exists(), "an attempt has no run"

    # --- help

    def _manage(self, name: str, verb: str, body: dict[str, Any]) -> None:
        reply = self.people["red"].post(f"/pool/nodes/{self.nodes[name].node_id}/{verb}", body)
        assert reply.status_code in (200, 409), reply.content

    def _any_run(self, data: st.DataObject, **of: str) -> Run | None:
        runs = list(Run.objects.filter(**of).order_by("created_at", "pk"))
        return data.draw(st.sampled_from(runs)) if runs else None

    def _owner(self, run: Run) -> Person:
        return next(person for person in self.people.values() if person.project.pk == run.project_id)

    def _running(self, node: PhysicalNode) -> list[str]:
        return [job for job, observed in node.jobs.items() if observed.state != JobState.EXITED]

    def _runs(self, job: Job) -> bool:
        return job.pk in self._running(self.nodes[job.attempt.node.name])

    def _end_everything(self) -> None:
        """Everybody comes back and every run is cancelled: then every run has ended, and no slot is held."""
        for name, node in self.nodes.items():
            node.is_up = True
            self.open_node(name)
        for run in Run.objects.exclude(status__in=ENDED):
            self._owner(run).post(f"/runs/{run.pk}/cancel")
        unended, held = Run.objects.exclude(status__in=ENDED), Lease.objects.filter(released_at=None)
        for _ in range(20):
            if not unended.exists() and not held.exists():
                return
            for node in self.nodes.values():
                node.ship_all()
            self.pass_time_with_reports(1)
        raise AssertionError(f"these do not end: {list(unended)}; these slots are held: {list(held)}")


def check(world: World, *, examples: int, steps: int, seed: int | None = None) -> None:
    """Play examples of the machine. `seed` chooses others than those of every run."""
    machine = type("SeededPoolMachine", (PoolMachine,), {"world": world})
    if seed is not None:
        machine = hypothesis.seed(seed)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=seed is None,
            suppress_health_check=list(HealthCheck), phases=PHASES, database=None,
        ),
    )  # fmt: skip


@contextmanager
def _rolled_back() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
