from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from control_plane.core.infra import clock
from control_plane.core.stream import event_stream
from control_plane.runs.models import Job, Run
from control_plane.runs.reconciler import reconcile_runs
from control_plane.runs.scheduling import schedule_runs
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import OutboxFile
from oolong.contracts.lifecycle import ENDED, RunStatus
from tests.integration.stream.stack import Stack, points_in_database, points_in_files, prepare, submit
from tests.unit.control_plane.telemetry.world import build_world, encode, step

STEPS = 1500


@pytest.fixture
def stack(transactional_db: None, tmp_path: Path) -> Iterator[Stack]:
    stack = prepare(tmp_path)
    yield stack
    stack.close()


def test_every_point_arrives_once_though_web_and_agent_are_killed(stack: Stack) -> None:
    """The worker's duties are done by this test, by calling the same services."""
    stack.start("web")
    stack.wait_for_web()
    stack.start("agent")
    stack.wait((stack.agent_data / "node.json").exists, seconds=60, what="enrollment")
    run_id = submit(stack, steps=STEPS, pause_seconds=0.004)

    def tick() -> None:
        schedule_runs(now=clock.now())
        reconcile_runs(now=clock.now())

    def has_read(lines: int) -> bool:
        tick()
        return OutboxFile.objects.filter(lines__gte=lines).exists()

    dice = random.Random(7)
    for kill in range(4):
        lines = kill * 600 + dice.randrange(300)
        stack.wait(partial(has_read, lines), seconds=120, what=f"{lines} lines")
        victim = ("web", "agent")[kill % 2]
        stack.kill(victim)
        stack.start(victim)
        stack.wait_for_web()

    def has_ended() -> bool:
        tick()
        return Run.objects.get(pk=run_id).status in ENDED

    stack.wait(has_ended, seconds=180, what="the end of the run")
    run = Run.objects.get(pk=run_id)
    assert run.status == RunStatus.SUCCEEDED, (run.reason, run.reason_message, stack.said())
    expected = points_in_files(stack)
    assert len(expected) == 3 * STEPS
    assert points_in_database() == expected
    assert run.train_step == STEPS
    job = Job.objects.get()
    assert job.incarnation == 0 and run.attempt_number == 1
    assert OutboxFile.objects.filter(bad_lines=0, conflicts=0, job=job).count() == 2


def test_a_process_killed_in_the_middle_of_its_transaction_leaves_nothing_behind(stack: Stack) -> None:
    world = build_world()
    body = encode(*(step(x) for x in range(100)))
    killed = subprocess.run(
        [sys.executable, "-c", _SHIP_AND_DIE, world.trainer.pk],
        input=body,
        env=stack.environment(),
        timeout=180,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not points_in_database()
    assert event_stream.current_seq(f"run:{world.run.pk}") == 0
    outbox.ingest_outbox(world.trainer.pk, "main-0.jsonl", offset=0, body=body)
    assert points_in_database().total() == 100
    assert event_stream.current_seq(f"run:{world.run.pk}") == 100


_SHIP_AND_DIE = """
import os, signal, sys
import django
django.setup()
from django.db import transaction
from control_plane.telemetry.ingest.outbox import ingest_outbox
with transaction.atomic():
    ingest_outbox(sys.argv[1], "main-0.jsonl", offset=0, body=sys.stdin.buffer.read())
    os.kill(os.getpid(), signal.SIGKILL)
"""
