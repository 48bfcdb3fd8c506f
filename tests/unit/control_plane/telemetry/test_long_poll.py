"""`?wait=`: the answer comes when the status moves, and holds up nobody."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.db import transaction
from django.test import AsyncClient

from control_plane.core.stream import event_stream
from control_plane.runs.models import Run
from tests.support.waiting import eventually
from tests.unit.control_plane.telemetry.world import build_world

LONG = 60


@pytest.fixture
def world(hub: Any) -> Any:
    return build_world()


def ask(token: str, path: str) -> Any:
    return AsyncClient().get(f"/api/v1{path}", headers={"authorization": f"Bearer {token}"})


@database_sync_to_async
def move(run_id: str, status: str) -> None:
    with transaction.atomic():
        Run.objects.filter(pk=run_id).update(status=status)
        event_stream.publish(f"run:{run_id}", "status", {"status": status})


async def test_the_answer_comes_when_the_status_moves(world: Any, hub: Any) -> None:
    token = await database_sync_to_async(world.token)()
    waiting = asyncio.create_task(ask(token, f"/runs/{world.run.pk}?wait={LONG}"))
    await eventually(lambda: hub._feeds, "it has seen the status and waits for the next")
    at_once = await ask(token, f"/runs/{world.run.pk}?wait={LONG}&seen=QUEUED")
    assert at_once.json()["status"] == "RUNNING", "the caller knew another status"
    assert not waiting.done()
    await move(world.run.pk, "STOPPING")
    answer = await waiting
    assert (answer.status_code, answer.json()["status"]) == (200, "STOPPING")


async def test_it_ends_with_the_time_and_says_what_is(world: Any) -> None:
    token = await database_sync_to_async(world.token)()
    answer = await ask(token, f"/runs/{world.run.pk}?wait=0")
    assert (answer.status_code, answer.json()["status"]) == (200, "RUNNING")


@pytest.mark.parametrize("wait", ["61", "-1", "1.5", "long"])
async def test_a_wait_that_cannot_be_is_refused(world: Any, wait: str) -> None:
    token = await database_sync_to_async(world.token)()
    answer = await ask(token, f"/runs/{world.run.pk}?wait={wait}")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert repr(wait) in answer.json()["detail"] and answer.json()["errors"][0]["pointer"] == "/wait"


async def test_who_may_not_see_a_run_does_not_wait_for_it(world: Any) -> None:
    stranger = await database_sync_to_async(lambda: build_world("two").token())()
    for (token, status), wait in product(((stranger, 404), ("ool_unknown", 401)), (LONG, "long")):
        answer = await ask(token, f"/runs/{world.run.pk}?wait={wait}")
        assert answer.status_code == status
