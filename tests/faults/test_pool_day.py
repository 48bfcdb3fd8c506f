"""The scripted day of a pool: four agents as four nodes, two pools with different devices, two teams with quotas.

docs/benchmarks/pool_day.md says what happens when, and what was measured. Pool `gpus` has two nodes of four emulated
GPUs each, `default` two nodes of two CPU slots each. The jobs are scripts; test_nodes.py has real trainers and engines
on several nodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import model_files, pool_day, small_runs
from tests.support.pool_day import Day, rl_of_scripts, sft_of_scripts
from tests.support.small_runs import Inputs, upload_inputs
from tests.support.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

POOL = "gpus"
RECLAIM_SECONDS = 30.0  # from the request for a slot to its return, on a machine that does everything at once


def test_every_run_of_a_day_succeeds_and_nothing_is_lost_or_sold_twice(
    new_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = new_stack(OOLONG_NODE_LEASE_SECONDS="15", OOLONG_MIN_RUNTIME_SECONDS="0")
    admin = stack.client()
    blue = type(admin)(url=stack.plane.url, token=stack.add_team("blue"))
    day = Day(stack, {"red": admin, "blue": blue})
    open_pools(day)
    model = model_files.write(tmp_path / "model")
    red_inputs, blue_inputs = upload_inputs(stack, model), upload_inputs(stack, model, client=blue)

    train_on_both_cpu_nodes(day, red_inputs)
    borrow(day, red_inputs)
    reclaim(day, blue_inputs)
    drain(day)
    kill_a_node(day)
    lend_and_return(day, red_inputs, blue_inputs)
    spread_a_trainer(day, red_inputs)
    day.finish("red-cpus")

    small_runs.assert_nothing_is_left(stack)
    assert {day.see(name).status for name in day.runs} == {"SUCCEEDED"}
    pool_day.assert_every_wait_was_explained(day)
    pool_day.assert_no_slot_was_sold_twice(day)
    unsent = pool_day.assert_no_acknowledged_metric_is_lost(day)
    repeated = pool_day.assert_every_attempt_continued_from_the_last_stored_checkpoint(day)
    pool_day.assert_no_stored_checkpoint_is_lost(day, tmp_path)
    day.note("the day ends", runs=len(day.runs), repeated_steps=repeated, unacknowledged_lines=unsent)
    if target := os.environ.get("POOL_DAY_FILE"):  # for docs/benchmarks/pool_day.md
        Path(target).write_text(
            json.dumps({"facts": day.facts, "waits": list(day.waits())}, indent=1, default=str)
        )


def open_pools(day: Day) -> None:
    admin, stack = day.clients["red"], day.stack
    admin.pool.create(POOL, all_teams=True)
    for quota in list(admin.pool.teams(POOL)):
        admin.pool.set_quota(POOL, quota.team.id, nominal_slots=4, limit_slots=8)
    for number, name in enumerate(("north", "south"), start=2):
        stack.add_node(name, slots=4, pool=POOL, emulated_gpus=True, peer_address=f"127.0.0.{number}")
    for number, name in enumerate(("east", "west"), start=4):
        stack.add_node(name, slots=2, peer_address=f"127.0.0.{number}", switches={"scripts": True})
    day.note("four nodes are in two pools", gpus=8, cpus=4)


def train_on_both_cpu_nodes(day: Day, inputs: Inputs) -> None:
    """Until the end of the day: neither of the two nodes is large enough for three ranks."""
    wanted = sft_of_scripts(inputs, "red-cpus", slots=3, pool="default", device="cpu", nodes=2)
    run_id = day.submit("red", wanted)
    day.until_status("red-cpus", "RUNNING")
    placed = {job.name: job.node.name for job in day.clients["red"].runs.jobs(run_id)}
    assert placed == {"trainer": "east", "trainer-1": "west"}
    day.note("red-cpus starts: a trainer of three ranks on east and west")


def borrow(day: Day, inputs: Inputs) -> None:
    for name in ("red-1", "red-2"):
        day.submit("red", sft_of_scripts(inputs, name, slots=4, pool=POOL))
    for name in ("red-1", "red-2"):
        day.until_trained(name)
    quota = {one.used_slots: one.nominal_slots for one in day.clients["red"].pool.teams(POOL)}
    assert quota == {8: 4, 0: 4}, "red borrows the four slots of blue"
    day.note("borrow: red holds 8 slots, 4 of them blue's")


def reclaim(day: Day, inputs: Inputs) -> None:
    """Preemption with a checkpoint, and the return of the slots."""
    day.submit("blue", sft_of_scripts(inputs, "blue-1", slots=4, pool=POOL))
    day.until_status("blue-1", "RUNNING")
    (victim,) = [name for name in ("red-1", "red-2") if day.see(name).status not in ("STARTING", "RUNNING")]
    asked = day.see("blue-1").created_at
    day.note(
        "reclaim: a run of red saves a checkpoint and leaves", victim=victim,
        seconds_to_preempt=seconds(asked, day.moment(victim, "preempted")),
        seconds_to_running=seconds(asked, day.moment("blue-1", "status", after="RUNNING")),
    )  # fmt: skip
    day.until_status(victim, "QUEUED")
    assert day.see(victim).attempt_number == 1
    first, *_ = day.clients["red"].runs.attempts(day.runs[victim][1])
    assert first.reason == "preempted"
    day.until(lambda: day.see(victim).pending_reason, f"{victim} says why it waits")
    day.until_trained("blue-1")
    day.finish("blue-1")
    ended = day.see("blue-1").ended_at
    day.until_status(victim, "RUNNING")
    day.until_trained(victim)
    again = day.moment(victim, "status", after="RUNNING")
    assert ended is not None
    day.note("return: it continues from its checkpoint", seconds_to_running=seconds(ended, again))


def drain(day: Day) -> None:
    """red-2 makes room, and the node of red-1 is drained."""
    day.finish("red-2")
    pool = day.clients["red"].pool
    left = day.node_of("red-1")
    (node,) = [one for one in pool.get(POOL).nodes if one.name == left]
    asked = pool.drain(node.id, deadline_seconds=60)
    assert asked.drain_deadline is not None
    day.until(
        lambda: next(one.status for one in pool.get(POOL).nodes if one.id == node.id) == "DRAINED",
        f"{left} is drained",
    )
    drained_at = day.moment("red-1", "status", after="QUEUED")
    assert drained_at < asked.drain_deadline
    day.until_trained("red-1")
    assert day.node_of("red-1") != left
    day.note(
        "drain with a deadline of 60 s: red-1 moves with a checkpoint", node=left,
        seconds_before_deadline=seconds(drained_at, asked.drain_deadline),
    )  # fmt: skip
    pool.uncordon(node.id)


def kill_a_node(day: Day) -> None:
    """SIGKILL to the agent of red-1's node and to every process of its jobs."""
    lost = day.stack.nodes[day.node_of("red-1")]
    day.killed = lost.name
    at_death = day.see("red-1").train_step
    attempts = day.see("red-1").attempt_number
    lost.kill()
    day.note("kill -9 of a node", node=lost.name)
    day.until(lambda: day.see("red-1").attempt_number > attempts, "red-1 starts elsewhere")
    day.until_status("red-1", "RUNNING")
    assert day.node_of("red-1") != lost.name
    resumed = day.see("red-1").train_step
    day.until_trained("red-1")
    lost.start()  # its agent finds no job alive and says so
    pool = day.clients["red"].pool
    day.until(
        lambda: all(slot.state == "free" for slot in pool.get(POOL).slots if slot.node.name == lost.name),
        f"the slots of {lost.name} are free",
    )
    day.note(
        "node kill: red-1 continues from its last stored checkpoint", acknowledged_steps_at_death=at_death,
        resumed_at=resumed,
    )  # fmt: skip
    day.finish("red-1")


def lend_and_return(day: Day, red_inputs: Inputs, blue_inputs: Inputs) -> None:
    """blue-rl has two slots of a node, and red another two. Engines on idle slots of the other node join blue-rl."""
    blue, run_id = day.clients["blue"], day.submit("blue", rl_of_scripts(blue_inputs, "blue-rl", pool=POOL))
    day.until_status("blue-rl", "RUNNING")
    home = day.node_of("blue-rl")
    day.submit("red", sft_of_scripts(red_inputs, "red-3", slots=2, pool=POOL))
    day.until_status("red-3", "RUNNING")
    assert day.node_of("red-3") == home
    blue.runs.change(run_id, changes={"rollout": {"engines": 3}})

    def engines(state: str) -> list[str]:
        found = [job for job in blue.runs.jobs(run_id) if job.kind == "rollout" and job.node.name != home]
        return sorted(job.name for job in found if job.state == state)

    def fetched() -> int:
        return sum(event.kind == "fetched" for event in blue.runs.events(run_id))

    day.until(lambda: len(engines("running")) == 2 and fetched() == 2, "two engines join on the other node")
    day.note("lend: two idle slots of the other node are engines of blue-rl, with its weights")

    day.submit("red", sft_of_scripts(red_inputs, "red-4", slots=4, pool=POOL))
    day.until_status("red-4", "RUNNING")
    assert day.node_of("red-4") != home
    assert (day.see("blue-rl").status, day.see("blue-rl").attempt_number) == ("RUNNING", 1)
    times = day.stack.rows(
        "SELECT extract(epoch FROM l.released_at - j.stop_asked_at) FROM runs_job j JOIN fleet_lease l ON l.job = j.id "
        "JOIN runs_attempt a ON a.id = j.attempt_id WHERE a.run_id = %s AND j.leaving_at IS NOT NULL",
        run_id,
    )
    slowest = max(float(row[0]) for row in times)
    assert len(times) == 2 and slowest < RECLAIM_SECONDS
    asked = day.see("red-4").created_at
    day.note(
        "reclaim of borrowed slots: red-4 gets them, blue-rl continues", seconds_to_release=round(slowest, 2),
        seconds_to_running=seconds(asked, day.moment("red-4", "status", after="RUNNING")),
    )  # fmt: skip
    day.until_trained("red-4")
    day.finish("red-4")
    day.until(lambda: len(engines("running")) == 2 and fetched() == 4, "two engines join again")
    day.note("return: two engines join blue-rl again", fetched=fetched())
    day.finish("red-3")
    day.finish("blue-rl")


def spread_a_trainer(day: Day, inputs: Inputs) -> None:
    run_id = day.submit("red", sft_of_scripts(inputs, "red-6-gpus", slots=6, pool=POOL, nodes=2))
    day.until_trained("red-6-gpus")
    where = {job.name: len(job.slots) for job in day.clients["red"].runs.jobs(run_id)}
    assert sorted(where.values()) == [2, 4]
    day.note("a trainer of 6 ranks is on both nodes", slots=where)
    day.finish("red-6-gpus")


def seconds(since: object, until: object) -> float:
    """Between two moments that the control plane recorded."""
    return round((until - since).total_seconds(), 1)  # type: ignore[operator]
