"""The real agent with switches that only tests have: a reward that fails, or a deaf-mute outbox.

`python -m tests.support.switched_agent run --server … ` takes what `python -m gpu_agents.agent run` takes; the
switches come as JSON in OOLONG_SWITCHES: {"reward_fails": true, "ships": false}. The product's own agent reads no such
variable: it starts the product's jobs, and has no way not to ship.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_agents.agent import __main__ as entry
from gpu_agents.agent import agent
from gpu_agents.agent.launch import COMMANDS, Command, JobContext, reward_command
from gpu_agents.agent.shipping import TelemetryShipper
from oolong.contracts.lifecycle import JobKind
from tests.support import failing_reward


def failing_reward_command(place: JobContext) -> list[str]:
    return [failing_reward.MODULE if word == "gpu_agents.rewards" else word for word in reward_command(place)]


@dataclass
class MuteShipper(TelemetryShipper):
    """Sees everything that could be shipped, and ships nothing."""

    async def run(self, **_: object) -> None:
        await asyncio.Event().wait()


def commands() -> Mapping[JobKind, Command]:
    return {**COMMANDS, JobKind.REWARD: failing_reward_command} if SWITCHES.get("reward_fails") else COMMANDS


class SwitchedAgent(agent.Agent):
    def __init__(
        self, settings: agent.AgentSettings, node: agent.Node, *, leave: asyncio.Event | None = None
    ) -> None:
        super().__init__(settings, node, commands=commands(), leave=leave)


SWITCHES = json.loads(os.environ.get("OOLONG_SWITCHES", "{}"))

if __name__ == "__main__":
    entry.Agent = SwitchedAgent  # type: ignore[attr-defined, misc]
    if SWITCHES.get("ships") is False:
        agent.TelemetryShipper = MuteShipper  # type: ignore[attr-defined, misc]
    sys.exit(entry.main())
