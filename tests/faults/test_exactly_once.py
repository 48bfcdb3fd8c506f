from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from control_plane.core.stream import event_stream
from control_plane.runs.models import Job, Run
from control_plane.telemetry.models import OutboxFile
from oolong.contracts.lifecycle import ENDED, RunStatus
from tests.integration.stream.follower import Follower
from tests.integration.stream.stack import Stack, points_in_database, points_in_files, prepare, submit

STEPS = 6000
KILLS = 12


@pytest.fixture
def stack(transactional_db: None, valkey_url: str, tmp_path: Path) -> Iterator[Stack]:
    stack = prepare(tmp_path)
    yield stack
    stack.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_the_database_equals_the_outbox_after_kills_of_agent_web_and_worker(stack: Stack, seed: int) -> None:
    for name in ("web", "worker", "beat"):
        stack.start(name)
    stack.wait_for_web()
    stack.start("agent")
    stack.wait((stack.agent_data / "node.json").exists, seconds=60, what="enrollment")
    run_id = submit(stack, steps=STEPS, pause_seconds=0.005)
    follower = Follower(url=f"ws://127.0.0.1:{stack.port}/ws/v1", token=stack.token, topic=f"run:{run_id}")
    follower.start()
    stack.wait(OutboxFile.objects.filter(lines__gt=0).exists, seconds=60, what="the first line")

    dice = random.Random(seed)
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 2.5))
        victim = dice.choice(["web", "web", "agent", "agent", "worker"])
        stack.kill(victim)
        time.sleep(dice.uniform(0, 1.0))
        stack.start(victim)

    stack.wait(lambda: Run.objects.get(pk=run_id).status in ENDED, seconds=150, what="the end of the run")
    run = Run.objects.get(pk=run_id)
    assert run.status == RunStatus.SUCCEEDED, (run.reason, run.reason_message, stack.said())
    assert (run.attempt_number, Job.objects.get().incarnation) == (1, 0)

    expected = points_in_files(stack)
    assert len(expected) == expected.total() == 3 * STEPS
    assert points_in_database() == expected
    assert not OutboxFile.objects.filter(bad_lines__gt=0).exists()
    assert not OutboxFile.objects.filter(conflicts__gt=0).exists()

    stack.wait(
        lambda: follower.last == event_stream.current_seq(f"run:{run_id}"), seconds=60, what="the last frame"
    )
    follower.close()
    assert follower.connections > 1
    assert not [frame for frame in follower.frames if frame["type"] == "gap"]
    numbers = [frame["seq"] for frame in follower.frames]
    assert numbers == sorted(set(numbers))
    assert follower.points() == {
        (source, axis, x): 1
        for source, axis in (("trainer", "step"), ("trainer/engine", "time"))
        for x in range(1, STEPS + 1)
    }
