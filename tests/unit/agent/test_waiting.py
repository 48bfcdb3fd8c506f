"""The agent's wait for local changes."""

from __future__ import annotations

import asyncio

import pytest

from gpu_agents.agent.agent import Agent
from gpu_agents.agent.records import Node
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from tests.support.scripted_control_plane import CREDENTIAL, ScriptedControlPlane


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_that_meets_a_nudge_is_not_lost(
    control_plane: ScriptedControlPlane, data: DataDirectory, turns: int
) -> None:
    settings = AgentSettings(
        server=control_plane.url, data_directory=data.root, node_python="python", name="node", slots=1
    )
    node = Node(
        server=control_plane.url,
        node_id="node_1",
        credential=CREDENTIAL,
        heartbeat_seconds=1.0,
        orphan_ttl_seconds=60.0,
    )
    agent = Agent(settings, node)
    agent._heartbeats._reported = []  # the server knows that there is nothing here: no news
    waiting = asyncio.create_task(agent._heartbeats._wait_for_change())
    await asyncio.sleep(0.01)
    agent._heartbeats.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    done, _ = await asyncio.wait({waiting}, timeout=60.0)
    assert done and waiting.cancelled()
    await agent._api.close()
