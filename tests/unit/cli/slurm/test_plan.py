"""Which Slurm jobs the provider submits and cancels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from oolong.cli.slurm.plan import ENDING, plan
from oolong.cli.slurm.types import Limits, Plan, PoolNode, QueuedRun, Situation, SlurmJob

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
LIMITS = Limits(max_nodes=3, slots=8, device="cuda")


def run(slots: int = 2, code: str | None = "capacity", *, key: str = "run_1", device: str = "") -> QueuedRun:
    return QueuedRun(key=key, name=key, slots=slots, device=device, code=code)


def node(job: str, *, free: int = 8, age: float = 600, silent: float = 1, status: str = "READY") -> PoolNode:
    return PoolNode(
        f"node_{job}", f"gpu-{job}", job, status, free, free == 8,
        enrolled_at=NOW - timedelta(seconds=age), last_seen_at=NOW - timedelta(seconds=silent),
    )  # fmt: skip


def decide(
    queue: Sequence[QueuedRun] = (), nodes: Sequence[PoolNode] = (), limits: Limits = LIMITS,
    unsuitable: frozenset[str] = frozenset(), gone: Sequence[str] = (), **jobs: str,
) -> Plan:  # fmt: skip
    """`jobs`: job_7="PENDING"."""
    listed = [SlurmJob(name.removeprefix("job_"), state) for name, state in jobs.items()]
    own = frozenset([*(job.id for job in listed), *gone])
    return plan(Situation(queue, nodes, listed, own, unsuitable, NOW), limits)


def test_runs_that_fit_one_node_together_get_one_job() -> None:
    assert decide([run(4), run(4, key="run_2")]).submit == 1
    assert decide([run(4), run(4, key="run_2"), run(1, key="run_3")]).submit == 2


@pytest.mark.parametrize("code", ["quota", "project_quota", "budget", "delayed", "not_lent"])
def test_a_run_that_waits_for_no_slots_gets_no_job(code: str) -> None:
    assert decide([run(code=code)]) == Plan()


@pytest.mark.parametrize("code", ["never_fits", "capacity", "behind", "reserved", "maintenance"])
def test_a_run_that_waits_for_slots_gets_a_job(code: str) -> None:
    assert decide([run(code=code)]).submit == 1


def test_nothing_is_submitted_twice_for_the_same_need() -> None:
    assert decide([run()], job_7="PENDING") == Plan()
    assert decide([run()], job_7="RUNNING") == Plan(admit=("7",))
    assert decide([run()], job_7="RUNNING", nodes=[node("7", age=3)]) == Plan()


def test_a_node_that_the_queue_was_planned_with_counts_no_more() -> None:
    assert decide([run()], job_7="RUNNING", nodes=[node("7", free=0)]).submit == 1


def test_a_job_whose_processes_are_ending_counts_no_more() -> None:
    for state in ENDING:
        assert decide([run()], job_7=state).submit == 1


def test_there_are_never_more_jobs_than_allowed() -> None:
    decided = decide(
        [run(8, key=f"run_{number}") for number in range(9)], job_7="RUNNING", nodes=[node("7", free=0)]
    )
    assert decided.submit == 2
    assert "--max-nodes 3" in decided.notes[0]


def test_pending_jobs_that_nothing_needs_are_canceled_and_the_oldest_stay() -> None:
    assert decide(job_9="PENDING", job_10="PENDING").cancel == ("9", "10")
    decided = decide([run()], job_10="PENDING", job_9="PENDING")
    assert (decided.cancel, decided.submit) == (("10",), 0)
    assert decide(job_7="RUNNING").cancel == ()


def test_a_run_that_no_plan_has_seen_keeps_a_pending_job_and_gets_none() -> None:
    assert decide([run(code=None)], job_7="PENDING") == Plan()
    assert decide([run(code=None)]) == Plan()


def test_a_run_for_another_device_or_for_more_slots_than_a_node_has_gets_no_job() -> None:
    assert decide([run(device="cpu")]) == Plan()
    decided = decide([run(9)])
    assert decided.submit == 0
    assert decided.notes == ("run_1 needs 9 slots on one node, and a node of this provider has 8",)


def test_a_run_that_fits_no_idle_node_gets_no_further_one_until_it_has_left_the_queue() -> None:
    idle = node("7")
    first = decide([run(code="never_fits")], job_7="RUNNING", nodes=[idle])
    assert (first.submit, first.unsuitable) == (0, {"run_1"})
    assert decide([run(code="never_fits")], unsuitable=first.unsuitable).submit == 0
    assert decide(unsuitable=first.unsuitable).unsuitable == frozenset()
    just_joined = replace(idle, enrolled_at=NOW)
    assert decide([run(code="never_fits")], job_7="RUNNING", nodes=[just_joined]).unsuitable == frozenset()


def test_a_node_whose_job_is_gone_is_removed_once_it_is_silent() -> None:
    assert decide(nodes=[node("7", silent=30)], gone=["7"]).remove == ("node_7",)
    assert decide(nodes=[node("7", silent=5)], gone=["7"]) == Plan()
    assert decide(nodes=[node("7", silent=30)], job_7="COMPLETING").remove == ()


def test_nodes_of_other_slurm_jobs_are_left_alone() -> None:
    assert decide(nodes=[node("99", silent=300, status="LOST")]) == Plan()


def test_a_job_is_forgotten_with_its_node() -> None:
    assert decide(gone=["7"]).forget == ("7",)
    assert decide(nodes=[node("7")], gone=["7"]).forget == ()
