"""Days of a pool in simulated time: a discrete-event simulation around the real scheduler.plan().

The simulation does what the control plane and the nodes do: it starts placed runs, saves a checkpoint before a run is
preempted, requeues the runs of a failed node from their last checkpoint, and lends idle slots. At each plan it asserts
that the plan is sound, and at the end that every run finished.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from statistics import NormalDist

from control_plane.fleet.scheduler import plan
from control_plane.fleet.snapshot import (
    Holder,
    HolderKind,
    LoanRequest,
    NodeSnapshot,
    Plan,
    Preemption,
    Request,
    SlotSnapshot,
    Snapshot,
    WaitCode,
)
from tests.unit.control_plane.fleet.pool_report import PoolReport, ReportBuilder
from tests.unit.control_plane.fleet.synthetic_load import (
    DAY,
    GPU_MEMORY_BYTES,
    HOUR,
    Load,
    Submission,
    node_failures,
    submissions,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = 1.0  # seconds between two plans while the plan changes something
RECLAIM_SECONDS = 2.0  # until a borrowed slot is free again
MIN_RUNTIME = 600.0  # for which no run is preempted; the default of the control plane
HALF_LIFE = 168 * HOUR  # of the use of slots; the default of the control plane
HORIZON = 30 * DAY  # after the last submission; a run that has not finished by then is starved


@dataclass
class Run:
    submission: Submission
    saved: float = 0.0  # seconds of work in its last checkpoint
    node: str = ""  # empty while it is queued
    held: tuple[SlotSnapshot, ...] = ()
    borrowed: dict[str, tuple[SlotSnapshot, bool]] = field(default_factory=dict)  # loan → slot, leaving
    started: float = 0.0  # of the attempt
    attempt: int = 0
    leaving: bool = False
    first_start: float | None = None
    finished: float | None = None
    preemptions: int = 0
    promised_start: datetime | None = None

    def checkpoint_at(self, now: float, interval: float) -> float:
        """Seconds of work in the checkpoint that the attempt has last saved."""
        return self.saved + (now - self.started) // interval * interval

    def all_slots(self) -> list[SlotSnapshot]:
        return [*self.held, *(slot for slot, _ in self.borrowed.values())]


class SimulatedPool:
    def __init__(self, load: Load, *, seed: int) -> None:
        self.load, self.now = load, 0.0
        self.nodes = {
            f"node-{number:03}": tuple(
                SlotSnapshot(f"GPU-{number}-{index}", "cuda", GPU_MEMORY_BYTES)
                for index in range(load.slots_per_node)
            )
            for number in range(load.nodes)
        }
        self.down: set[str] = set()
        self.runs: dict[str, Run] = {}
        self.queue: dict[str, Run] = {}
        self.active: dict[str, Run] = {}
        self.slot_seconds = Counter[str]()  # decayed use, by team
        self.report = ReportBuilder({team: one.quota for team, one in load.teams.items()})
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._plan_at = math.inf
        for submission in submissions(load, seed=seed):
            self._at(submission.at, lambda one=submission: self._submit(one))
        names = list(self.nodes)
        for at, number, repair in node_failures(load, seed=seed):
            self._at(at, lambda node=names[number], down=repair: self._fail(node, down))

    def play(self) -> PoolReport:
        """Until every run has finished. AssertionError when a plan is unsound or a run starves."""
        while self._events:
            at = self._events[0][0]
            self._pass_time(at)
            while self._events and self._events[0][0] == at:
                heapq.heappop(self._events)[2]()
            self._schedule()
            late = at > self.load.days * DAY + HORIZON
            assert not late, f"starved: {sorted({*self.queue, *self.active})}"
        assert not self.queue and not self.active, (
            f"nothing happens any more, but these wait: {sorted(self.queue)}"
        )
        return self.report.build(self.runs.values(), interval=self.load.checkpoint_interval)

    # --- events

    def _submit(self, submission: Submission) -> None:
        run = self.runs[submission.name] = Run(submission)
        self.queue[submission.name] = run

    def _finish(self, run: Run, attempt: int) -> None:
        if run.attempt == attempt and run.node:
            self._release(run)
            run.finished = self.now

    def _leave(self, run: Run, attempt: int, saved: float) -> None:
        """The preempted run has saved its checkpoint. A playground has none and ends."""
        if run.attempt != attempt or not run.node:
            return
        self.report.lost_slot_seconds += len(run.held) * (run.saved + self.now - run.started - saved)
        run.saved = saved
        self._release(run)
        if run.submission.playground:
            run.finished = self.now
        else:
            self.queue[run.submission.name] = run

    def _fail(self, node: str, repair: float) -> None:
        if node in self.down:
            return
        self.down.add(node)
        self.report.node_failures += 1
        for run in [one for one in self.active.values() if one.node == node]:
            saved = run.checkpoint_at(self.now, self.load.checkpoint_interval)
            self.report.failed_slot_seconds += len(run.held) * (run.saved + self.now - run.started - saved)
            run.saved = 0.0 if run.submission.playground else saved
            self._release(run)
            self.queue[run.submission.name] = run
        self._at(self.now + repair, lambda: self.down.discard(node))

    def _return_slot(self, run: Run, attempt: int, loan: str) -> None:
        if run.attempt == attempt:
            run.borrowed.pop(loan, None)

    def _release(self, run: Run) -> None:
        del self.active[run.submission.name]
        run.node, run.held, run.leaving = "", (), False
        run.borrowed.clear()

    # --- the scheduler

    def _schedule(self) -> None:
        if not self.queue and not any(run.submission.extra_engines for run in self.active.values()):
            return
        snapshot = self._snapshot()
        decisions = plan(snapshot)
        self._assert_sound(snapshot, decisions)
        for name, at in decisions.promises.items():
            self.runs[name].promised_start = at
        for placement in decisions.placements:
            self._start(placement.request, placement.node, placement.slots)
        changed = [self._preempt(one) for one in decisions.preemptions]
        for loan in decisions.loans:
            run = self.runs[loan.request.attempt]
            for _, name in loan.slots:
                slot = next(one for one in self.nodes[run.node] if one.name == name)
                run.borrowed[f"{run.submission.name}/{next(self._numbers)}"] = (slot, False)
        if decisions.placements or any(changed) or any(loan.slots for loan in decisions.loans):
            self._at(self.now + TICK, lambda: None)

    def _start(self, name: str, node: str, slots: tuple[str, ...]) -> None:
        run = self.queue.pop(name)
        run.node, run.started, run.attempt = node, self.now, run.attempt + 1
        run.promised_start = None
        run.held = tuple(slot for slot in self.nodes[node] if slot.name in slots)
        run.first_start = self.now if run.first_start is None else run.first_start
        self.active[name] = run
        attempt = run.attempt
        self._at(self.now + run.submission.duration - run.saved, lambda: self._finish(run, attempt))
        self._at(self.now + MIN_RUNTIME, lambda: None)  # it may be preempted from now on

    def _preempt(self, preemption: Preemption) -> bool:
        if preemption.kind is HolderKind.ENGINE:
            run = self.runs[preemption.holder.partition("/")[0]]
            slot, leaving = run.borrowed[preemption.holder]
            if leaving:
                return False
            run.borrowed[preemption.holder] = (slot, True)
            self.report.reclaims += 1
            attempt = run.attempt
            after = self.now + RECLAIM_SECONDS
            self._at(after, lambda: self._return_slot(run, attempt, preemption.holder))
            return True
        run = self.active[preemption.holder]
        if run.leaving:
            return False
        run.leaving = True
        run.preemptions += 1
        # The trainer finishes its step and saves; what it computes while it saves is not in the checkpoint.
        saved, attempt = run.saved + self.now - run.started, run.attempt
        self._at(self.now + self.load.save_seconds, lambda: self._leave(run, attempt, saved))
        return True

    def _snapshot(self) -> Snapshot:
        busy = {slot.name for run in self.active.values() for slot in run.all_slots()}
        used = Counter[str]()
        for run in self.active.values():
            used[run.submission.team] += len(run.all_slots())
        return Snapshot(
            now=START + timedelta(seconds=self.now),
            nodes=[
                NodeSnapshot(
                    node, node,
                    free=tuple(slot for slot in slots if slot.name not in busy),
                    held=tuple(slot for slot in slots if slot.name in busy),
                    accepts=node not in self.down, state="unresponsive" if node in self.down else "",
                )
                for node, slots in self.nodes.items()
            ],
            queue=[self._waiting(run) for run in self.queue.values()],
            free_at=self._free_at(),
            used=used,
            quotas={team: one.quota for team, one in self.load.teams.items()},
            slot_hours={team: seconds / HOUR for team, seconds in self.slot_seconds.items()},
            holders=[*map(self._holder, self.active.values()), *self._borrowers()],
            loan_requests=[
                LoanRequest(name, "engines", _request(run), (run.node,), missing)
                for name, run in self.active.items()
                if (missing := run.submission.extra_engines - len(run.borrowed)) > 0 and not run.leaving
            ],
        )  # fmt: skip

    def _waiting(self, run: Run) -> Request:
        predicted = run.submission.predicted
        if predicted is None or self.load.prediction_sigma is None:
            return _request(run)
        late = math.exp(NormalDist().inv_cdf(0.9) * self.load.prediction_sigma)
        seconds = max(1.0, predicted * late - run.saved)
        return replace(_request(run), predicted_seconds=seconds, promised_start=run.promised_start)

    def _free_at(self) -> dict[tuple[str, str], datetime]:
        free_at = {}
        for run in self.active.values():
            if run.submission.predicted is not None:
                ends = max(self.now, run.started + run.submission.predicted - run.saved)
                at = START + timedelta(seconds=ends)
                free_at |= {(run.node, slot.name): at for slot in run.all_slots()}
        return free_at

    def _holder(self, run: Run) -> Holder:
        kind = HolderKind.PLAYGROUND if run.submission.playground else HolderKind.RUN
        since = self.now - run.started
        return Holder(
            run.submission.name, run.submission.team, run.node, tuple(slot.name for slot in run.held), run.leaving,
            kind, protected=since < MIN_RUNTIME,
            lost_gpu_seconds=len(run.held) * (since % self.load.checkpoint_interval),
        )  # fmt: skip

    def _borrowers(self) -> list[Holder]:
        return [
            Holder(loan, run.submission.team, run.node, (slot.name,), leaving or run.leaving)
            for run in self.active.values()
            for loan, (slot, leaving) in run.borrowed.items()
        ]

    def _assert_sound(self, snapshot: Snapshot, decisions: Plan) -> None:
        free = {
            node.id: {slot.name for slot in node.free} if node.accepts else set() for node in snapshot.nodes
        }
        used = Counter(snapshot.used)
        for placement in decisions.placements:
            assert set(placement.slots) <= free[placement.node], f"{placement}: a slot is not free"
            assert len(placement.slots) == self.queue[placement.request].submission.slots
            free[placement.node] -= set(placement.slots)
            used[self.queue[placement.request].submission.team] += len(placement.slots)
        # Work-conserving: the first request that waits for capacity fits nowhere.
        for name, wait in decisions.waiting.items():
            if wait.code is WaitCode.CAPACITY:
                wanted = self.queue[name].submission.slots
                assert all(len(slots) < wanted for slots in free.values()), f"{name} fits, but waits: {wait}"
                break
        for loan in decisions.loans:
            for node, slot in loan.slots:
                assert slot in free[node], f"{loan}: a slot is not free"
                free[node].remove(slot)
            used[loan.request.request.team] += len(loan.slots)
        for team, held in used.items():
            limit = snapshot.quota(team).limit
            assert limit is None or held <= limit, f"{team} holds {held} slots of at most {limit}"
        accounted = {placement.request for placement in decisions.placements} | set(decisions.waiting)
        assert accounted == set(self.queue), "a request is neither placed nor explained"

    # --- time

    def _at(self, at: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), event))

    def _pass_time(self, to: float) -> None:
        seconds = to - self.now
        held, borrowed, wanted = Counter[str](), 0, Counter[str]()
        for run in self.active.values():
            held[run.submission.team] += len(run.held)
            borrowed += len(run.borrowed)
        for run in self.queue.values():
            wanted[run.submission.team] += run.submission.slots
        capacity = self.load.slots_per_node * (len(self.nodes) - len(self.down))
        within = self.now < self.load.days * DAY  # afterwards the pool only empties
        self.report.pass_time(seconds if within else 0.0, held, wanted, borrowed=borrowed, capacity=capacity)
        decay = 0.5 ** (seconds / HALF_LIFE)
        for team in self.load.teams:
            use = held[team] * HALF_LIFE / math.log(2) * (1 - decay)
            self.slot_seconds[team] = self.slot_seconds[team] * decay + use  # type: ignore[assignment]
        self.now = to


def _request(run: Run) -> Request:
    one = run.submission
    return Request(
        one.name, one.name, one.team, 500, one.slots, START + timedelta(seconds=one.at), device="cuda",
        preemptible=one.playground,
    )  # fmt: skip
