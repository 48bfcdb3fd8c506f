"""The controller over HTTP: who may call, what a wrong call gets, and polls that end at the right moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gpu_agents.rollout.controller import __main__ as controller_main
from gpu_agents.rollout.controller.server import MAX_POLL_SECONDS, ControllerServer
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.rollout import (
    Ack,
    ClaimReply,
    ClaimRequest,
    EndRequest,
    PublishVersionRequest,
    SnapshotReply,
    SnapshotRequest,
    StateReply,
    StateRequest,
    SubmitRequest,
    TakeReply,
    TakeRequest,
)
from oolong.contracts.telemetry import Note
from oolong.system.rpc import RpcClient, RpcError, RpcUnavailable
from tests.support import uninvited
from tests.unit.rollout.harness import TOKEN, Harness, run_spec
from tests.unit.rollout.model_files import publish, write_model, write_rows
from tests.unit.rollout.simulation import finished_group

ALICE = "rollout-0/0"


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[Harness]:
    spec = run_spec(staleness={"max": 0})
    rows = write_rows(tmp_path / "rows.jsonl", 20)
    async with Harness(tmp_path / "attempt", spec, write_model(tmp_path / "model"), rows) as run:
        yield run


@pytest.fixture
async def peer(run: Harness) -> AsyncIterator[RpcClient]:
    peer = run.peer()
    yield peer
    await peer.close()


async def announce(run: Harness, tmp_path: Path, version: int = 0) -> None:
    await run.trainer.announce(publish(tmp_path / "weights", version), "trained" if version else "none")


async def test_uninvited_callers_are_tried_on_every_call_of_the_controller(run: Harness) -> None:
    calls = {resource.canonical.strip("/") for resource in run.server.rpc.app.router.resources()}
    assert len(calls) > 10
    assert calls <= set(uninvited.METHODS)


async def test_without_the_attempts_token_nothing_is_answered(run: Harness) -> None:
    url = f"http://127.0.0.1:{run._ports[0]}"
    for token in ("", "another"):
        stranger = RpcClient("the controller", url, token)
        with pytest.raises(RpcError, match="unauthorized"):
            await stranger.call("state", StateRequest(), StateReply)
        await stranger.close()


async def test_a_malformed_call_is_refused_with_what_is_wrong(run: Harness) -> None:
    url = f"http://127.0.0.1:{run._ports[0]}/claim"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        async with http.post(url, data=b"\x81\xa9worker_id\x01") as response:
            assert response.status == 400
            assert b"malformed" in await response.read()


async def test_a_call_out_of_order_is_fenced(run: Harness, peer: RpcClient, tmp_path: Path) -> None:
    await announce(run, tmp_path)
    with pytest.raises(RpcError, match="stale_epoch: got version 3, expected 0"):
        await peer.call("take", TakeRequest(version=3, groups=4), TakeReply)
    with pytest.raises(RpcError, match="stale_epoch"):
        await peer.call("snapshot", SnapshotRequest(version=3), SnapshotReply)


async def test_a_stale_submit_gets_an_error(run: Harness, peer: RpcClient, tmp_path: Path) -> None:
    await announce(run, tmp_path)
    request = ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=1)
    [claimed] = (await peer.call("claim", request, ClaimReply)).groups
    group = finished_group(claimed, [0, 0])
    submit = SubmitRequest(worker_id="rollout-9/0", claim_id=claimed.claim_id, group=group)
    with pytest.raises(RpcError) as refused:
        await peer.call("submit", submit, Ack)
    assert refused.value.code == "stale_claim"


async def test_a_waiting_claim_is_answered_when_a_place_comes_free(
    run: Harness, peer: RpcClient, tmp_path: Path
) -> None:
    """eta = 0: all places are taken until the next version."""
    await announce(run, tmp_path)
    request = ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=4)
    claimed = (await peer.call("claim", request, ClaimReply)).groups
    waiting = ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=4, wait_seconds=MAX_POLL_SECONDS)
    call = asyncio.create_task(peer.call("claim", waiting, ClaimReply))
    for one in claimed:
        group = finished_group(one, [0])
        submit = SubmitRequest(worker_id=ALICE, claim_id=one.claim_id, group=group)
        await peer.call("submit", submit, Ack)
    await run.trainer.take(0)
    assert not call.done()
    await announce(run, tmp_path, 1)
    reply = await asyncio.wait_for(call, 60)
    assert (reply.refusal, reply.newest_version) == ("engine_behind", 1)


async def test_a_caller_that_left_is_handed_no_claim(
    run: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, left, poll = run.peer(), asyncio.Event(), run.server._poll

    async def noted(*arguments: Any) -> Any:
        try:
            return await poll(*arguments)
        finally:
            left.set()

    monkeypatch.setattr(run.server, "_poll", noted)
    request = ClaimRequest(worker_id=ALICE, engine_version=0, max_groups=4, wait_seconds=MAX_POLL_SECONDS)
    call = asyncio.create_task(gone.call("claim", request, ClaimReply))
    await run.until(lambda: bool(run.controller.state.engines.all()))
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await gone.close()
    await asyncio.wait_for(left.wait(), 60)  # the server has read the closed connection
    await announce(run, tmp_path)
    assert run.controller.state.ledger.counts().drawn == 0


async def test_what_was_noted_last_is_sent_before_the_end(
    run: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: ControllerServer) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ControllerServer, "run_ticks", never)
    job = run._job("last", JobKind.CONTROLLER, 0, 0)
    controller, template = controller_main.build(job)
    controller.state.engines.touch(ALICE, now=0.0)
    controller.state.touch("rollout-0/1", now=0.0)
    controller.trainer.end(EndRequest(reason="stopped"))
    monkeypatch.setattr(controller_main, "address_of", lambda _: ("127.0.0.1", 0))
    monkeypatch.setattr(controller_main, "stop_event", asyncio.Event)
    monkeypatch.setattr(controller_main, "END_ACK_SECONDS", 0.0)
    await controller_main.serve(job, controller, template)
    notes = [line.message for line in run.lines("last") if isinstance(line, Note)]
    assert notes == [f"{ALICE} is gone: rollout-0/1 replaced it"]


async def test_state_waits_for_a_newer_version(run: Harness, peer: RpcClient, tmp_path: Path) -> None:
    call = asyncio.create_task(
        peer.call("state", StateRequest(after_version=-1, wait_seconds=MAX_POLL_SECONDS), StateReply)
    )
    await announce(run, tmp_path)
    assert (await asyncio.wait_for(call, 60)).newest_version == 0


async def test_a_peer_that_is_not_there_is_named_after_bounded_patience() -> None:
    peer = RpcClient("the reward service", "http://127.0.0.1:9", "t", connect_seconds=0.2)
    async with asyncio.timeout(60):
        with pytest.raises(
            RpcUnavailable, match=r"service at http://127\.0\.0\.1:9 did not answer /state for 0\.2 s"
        ):
            await peer.call("state", StateRequest(), StateReply)
    await peer.close()


async def test_an_announcement_without_weights_is_refused(run: Harness, peer: RpcClient) -> None:
    with pytest.raises(RpcError, match="without its weights"):
        await peer.call(
            "publish_version", PublishVersionRequest(version=0, weights=None, outcome="none"), Ack
        )
