"""What the scripted day of a pool needs: runs of scripts that end when told to, and the checks at its end.

A script is tests/support/small_job.py in place of a trainer, a controller or an engine. Agents, supervisors, isolation,
leases, telemetry, checkpoints and uploads are real.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from oolong.client import Client
from oolong.client.models import Run
from oolong.contracts.attempt import JobFile
from oolong.contracts.telemetry import Points, decode_line
from tests.support.outboxes import written_lines
from tests.support.small_runs import Inputs
from tests.support.stack import Stack, until
from tests.support.tiny_specs import tiny_spec

CHECKPOINT_EVERY = 20  # points
POINT_SECONDS = 0.1
TRAINER = {"finishes": True, "saves": True, "checkpoint": CHECKPOINT_EVERY, "every": POINT_SECONDS}
# Seconds: the scheduler plans every second, but on a machine that does everything at once its worker waits for a core.
EXPLAINED_WITHIN = 20.0


def sft_of_scripts(
    inputs: Inputs, name: str, *, slots: int, pool: str, device: str = "cuda", nodes: int = 1
) -> dict[str, Any]:
    """A run of so many slots that trains until `finish`."""
    plan = {"trainer": TRAINER, **{f"trainer-{rank}": {"finishes": True} for rank in range(1, nodes)}}
    document = tiny_spec(
        {
            "kind": "sft", "name": name, "model": {"base_model": inputs.model},
            "dataset": {"version": inputs.dataset, "split": "train"},
            "trainer": {"num_ranks": slots}, "placement": {"pool": pool, "device": device, "nodes": nodes},
            "notes": json.dumps(plan),
        }
    )  # fmt: skip
    document["sft"] = {"validation_split": None}
    return document


def rl_of_scripts(inputs: Inputs, name: str, *, pool: str) -> dict[str, Any]:
    """A run with one engine and one rank that trains until `finish`. Its controller serves weights with TLS, and
    engines that join on other nodes fetch them."""
    joining = {f"rollout-{number}": {"fetches": True} for number in range(1, 10)}
    plan = {"trainer": TRAINER, "controller": {"publishes": True, "finishes": True}, **joining}
    return tiny_spec(
        {
            "kind": "rl", "name": name, "model": {"base_model": inputs.model},
            "dataset": {"version": inputs.dataset, "split": "train"}, "reward": {"name": "exact_match"},
            "placement": {"pool": pool, "device": "cuda"}, "notes": json.dumps(plan),
        }
    )  # fmt: skip


@dataclass
class Day:
    """Who submits runs, and what was seen."""

    stack: Stack
    clients: dict[str, Client]  # by team
    began: float = field(default_factory=time.monotonic)
    runs: dict[str, tuple[str, str]] = field(default_factory=dict)  # name → team, ID
    stored: dict[str, int] = field(default_factory=dict)  # checkpoint that was STORED at some time → its step
    killed: str = ""  # the node that was killed
    facts: list[dict[str, Any]] = field(default_factory=list)

    def submit(self, team: str, spec: dict[str, Any]) -> str:
        run_id = self.clients[team].runs.create(spec).id
        self.runs[spec["name"]] = (team, run_id)
        return run_id

    def note(self, what: str, **measured: Any) -> None:
        """A line of the day's log."""
        at = round(time.monotonic() - self.began)
        self.facts.append({"at": at, "what": what, **measured})
        print(f"{at // 60:2d}:{at % 60:02d}  {what}  {measured or ''}", flush=True)

    # --- following

    def see(self, name: str) -> Run:
        team, run_id = self.runs[name]
        return self.clients[team].runs.get(run_id)

    def until(self, ready: Any, what: str, *, seconds: float = 90.0) -> Any:
        def seen() -> Any:
            self.look_at_checkpoints()
            return ready()

        return until(seen, seconds=seconds, what=what, said=self.said)

    def until_status(self, name: str, *statuses: str, seconds: float = 90.0) -> None:
        self.until(lambda: self.see(name).status in statuses, f"{name} is {statuses}", seconds=seconds)

    def until_trained(self, name: str, more: int = CHECKPOINT_EVERY) -> None:
        """So many points more than now."""
        wanted = self.see(name).train_step + more
        self.until(lambda: self.see(name).train_step >= wanted, f"{name} trains to {wanted}")

    def look_at_checkpoints(self) -> None:
        """Remember every checkpoint that the control plane has acknowledged as stored."""
        self.stored |= dict(
            self.stack.rows("SELECT id, step FROM checkpoints_checkpoint WHERE state = 'STORED'")
        )

    def said(self) -> str:
        lines = [json.dumps(fact, default=str) for fact in self.facts]
        for name in self.runs:
            run = self.see(name)
            lines.append(f"{name}: {run.status} {run.pending_reason or ''} {run.reason_message or ''}")
        return "\n".join([*lines, self.stack.said()])

    def node_of(self, name: str) -> str:
        """The node of its newest attempt."""
        team, run_id = self.runs[name]
        newest = max(self.clients[team].runs.attempts(run_id), key=lambda attempt: attempt.number)
        assert newest.node is not None
        return str(newest.node.name)

    # --- ending

    def finish(self, name: str) -> None:
        """Have a run of scripts complete, and wait for it."""
        team, run_id = self.runs[name]
        newest = max(self.clients[team].runs.attempts(run_id), key=lambda attempt: attempt.number)
        for node in self.stack.nodes.values():
            for directory in node.data.glob(f"attempts/{newest.id}/jobs/*"):
                (directory / "finish").touch()
        self.until_status(name, "SUCCEEDED", "FAILED", "STOPPED")
        run = self.see(name)
        assert run.status == "SUCCEEDED", (name, run.reason, run.reason_message, self.said())

    # --- moments, as the control plane recorded them

    def moment(self, name: str, kind: str, **data: Any) -> datetime:
        """Of the newest event of this kind with this data."""
        team, run_id = self.runs[name]
        found = [
            event.at
            for event in self.clients[team].runs.events(run_id)
            if event.kind == kind and all(event.data.get(key) == value for key, value in data.items())
        ]
        assert found, f"{name} has no event {kind} {data}"
        return max(found)

    def waits(self) -> Iterator[tuple[str, float, list[str]]]:
        """Every time in the queue: the run, its seconds, and the codes of the reasons that were recorded in it."""
        for name, (team, run_id) in self.runs.items():
            run = self.clients[team].runs.get(run_id)
            events = sorted(self.clients[team].runs.events(run_id), key=lambda event: (event.at, event.id))
            since: datetime | None = run.created_at
            codes: list[str] = []
            for event in events:
                if event.kind == "status" and since is not None and event.data["before"] == "QUEUED":
                    yield name, (event.at - since).total_seconds(), codes
                    since, codes = None, []
                if event.kind == "status" and event.data["after"] == "QUEUED":
                    since, codes = event.at, []
                if event.kind == "waiting":
                    codes.append(event.data.get("code", ""))
            assert since is None, f"{name} is still queued"


# --- what must be true at the end of the day ------------------------------------------------------------------


def assert_every_wait_was_explained(day: Day) -> None:
    for name, seconds, codes in day.waits():
        assert all(codes), f"{name}: a reason without a code"
        assert codes or seconds < EXPLAINED_WITHIN, f"{name} waited {seconds:.1f} s without a reason"


def assert_no_slot_was_sold_twice(day: Day) -> None:
    """Neither by the history of leases, nor by what the jobs wrote while they held their slots."""
    stack = day.stack
    overlapping = stack.rows(
        "SELECT n.name, s.name, a.job_name, b.job_name FROM fleet_lease a "
        "JOIN fleet_lease b ON a.slot_id = b.slot_id AND a.id < b.id "
        "AND tstzrange(a.granted_at, a.released_at) && tstzrange(b.granted_at, b.released_at) "
        "JOIN fleet_slot s ON s.id = a.slot_id JOIN fleet_node n ON n.id = s.node_id"
    )
    assert overlapping == []
    assert stack.value("SELECT count(*) FROM fleet_lease WHERE released_at IS NULL") == 0
    used: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for node in stack.nodes.values():
        for job, directory in node.jobs():
            times = [line.at for line in written_lines(directory) if isinstance(line, Points)]
            for slot in job.slots if times else ():
                span = (min(times), max(times), f"{directory.parts[-3]}/{job.name}#{job.incarnation}")
                used.setdefault((node.name, slot), []).append(span)
    assert sum(map(len, used.values())) > len(used), "no slot was used twice: this shows nothing"
    for slot, spans in used.items():
        for earlier, later in pairwise(sorted(spans)):
            assert earlier[1] <= later[0], f"{slot}: {earlier[2]} and {later[2]} wrote at the same time"


def assert_no_acknowledged_metric_is_lost(day: Day) -> int:
    """What the control plane has acknowledged of each outbox is stored, once. Only the node that was killed has lines
    that were not acknowledged; how many is returned."""
    stack = day.stack
    offsets = dict(stack.rows("SELECT job_id || '/' || name, \"offset\" FROM telemetry_outboxfile"))
    acknowledged: Counter[tuple[Any, ...]] = Counter()
    unsent = 0
    for node in stack.nodes.values():
        for job, directory in node.jobs():
            for file in (directory / "outbox").glob("*.jsonl"):
                content, offset = file.read_bytes(), offsets.get(f"{job.job_id}/{file.name}", 0)
                if offset < len(content):
                    assert node.name == day.killed, f"{node.name} did not ship all of {file}"
                    unsent += content[offset:].count(b"\n")
                acknowledged += points_in(content[:offset], job, attempt=directory.parts[-3])
    stored = Counter(
        stack.rows(
            "SELECT s.attempt_id, s.name, s.source, s.axis, p.x, p.value "
            "FROM telemetry_metricpoint p JOIN telemetry_metricseries s ON s.id = p.series_id"
        )
    )
    assert acknowledged and max(acknowledged.values()) == 1
    assert stored == acknowledged, f"lost: {list((acknowledged - stored).items())[:5]}"
    return unsent


def points_in(lines: bytes, job: JobFile, *, attempt: str) -> Counter[tuple[Any, ...]]:
    """Of an outbox, as they are stored."""
    found: Counter[tuple[Any, ...]] = Counter()
    source = job.name if job.incarnation == 0 else f"{job.name}#{job.incarnation}"
    for line in map(decode_line, lines.splitlines()):
        if isinstance(line, Points):
            part = f"{source}/{line.source}" if line.source else source
            for name, value in line.values.items():
                found[attempt, name, part, line.axis, line.x, value] += 1
    return found


def assert_every_attempt_continued_from_the_last_stored_checkpoint(day: Day) -> dict[str, int]:
    """And no step is missing between the attempts of a run. Returns the steps that each run of scripts did twice."""
    repeated = {}
    for name, (_, run_id) in day.runs.items():
        rows = day.stack.rows(
            "SELECT a.number, c.step, (SELECT max(b.step) FROM checkpoints_checkpoint b WHERE b.run_id = a.run_id "
            "AND b.kind = 'training' AND b.stored_at < a.created_at), "
            "(SELECT array_agg(p.x ORDER BY p.x) FROM telemetry_metricpoint p "
            "JOIN telemetry_metricseries s ON s.id = p.series_id WHERE s.attempt_id = a.id "
            "AND s.name = 'reward/mean' AND s.source = 'trainer') "
            "FROM runs_attempt a LEFT JOIN checkpoints_checkpoint c ON c.id = a.resume_checkpoint_id "
            "WHERE a.run_id = %s ORDER BY a.number",
            run_id,
        )
        reached, repeated[name] = 0, 0
        for number, resumed, newest, steps in rows:
            assert resumed == newest, f"{name}, attempt {number}: from {resumed}, but {newest} was stored"
            if not steps:
                continue  # it ended before its first step
            assert steps[0] == (resumed or 0) + 1, f"{name}, attempt {number} begins with step {steps[0]}"
            assert steps == list(range(steps[0], steps[-1] + 1)), (
                f"{name}, attempt {number}: a step is missing"
            )
            repeated[name] += max(0, reached - (resumed or 0))
            reached = steps[-1]
        last = day.see(name).latest_checkpoint
        assert last is not None and last.step == reached, (
            f"{name}: step {reached} is its last, {last} is stored"
        )
    return repeated


def assert_no_stored_checkpoint_is_lost(day: Day, target: Path) -> None:
    """Each one that was acknowledged is there, or its run's policy removed it; the last one of each run downloads."""
    day.look_at_checkpoints()
    states = dict(day.stack.rows("SELECT id, state FROM checkpoints_checkpoint"))
    assert {states.get(one, "gone") for one in day.stored} <= {"STORED", "DELETED"}
    for name, (team, run_id) in day.runs.items():
        client = day.clients[team]
        last = client.runs.get(run_id).latest_checkpoint
        assert last is not None and last.id in day.stored, name
        # The client compares the archive with its hash.
        client.checkpoints.download(last.id, target / f"{run_id}.tar")
