"""The real agent with switches that only tests have: a reward that fails, a deaf-mute outbox, scripts for jobs, or
more environment for them.

`python -m tests.support.switched_agent run --server … ` takes what `python -m gpu_agents.agent run` takes; the
switches come as JSON in OOLONG_SWITCHES: {"reward_fails": true, "ships": false, "scripts": true, "jobs": {"A": "1"}}.
The product's own agent reads no such variable: it starts the product's jobs with a fixed environment, and has no way
not to ship.
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
from tests.support import failing_reward, small_jobs


def failing_reward_command(place: JobContext) -> list[str]:
    return [failing_reward.MODULE if word == "gpu_agents.rewards" else word for word in reward_command(place)]


@dataclass
class MuteShipper(TelemetryShipper):
    """Sees everything that could be shipped, and ships nothing."""

    async def run(self, **_: object) -> None:
        await asyncio.Event().wait()


def with_environment(command: Command, variables: Mapping[str, str]) -> Command:
    words = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]
    return lambda place: [*words, *command(place)]


def commands() -> Mapping[JobKind, Command]:
    chosen = dict(small_jobs.COMMANDS if SWITCHES.get("scripts") else COMMANDS)
    if SWITCHES.get("reward_fails"):
        chosen[JobKind.REWARD] = failing_reward_command
    variables = SWITCHES.get("jobs")
    return {kind: with_environment(one, variables) for kind, one in chosen.items()} if variables else chosen


class SwitchedAgent(agent.Agent):
    def __init__(
        self, settings: agent.AgentSettings, node: agent.Node, *, leave: asyncio.Event | None = None
    ) -> None:
        super().__init__(settings, node, commands=commands(), leave=leave)


SWITCHES = json.loads(os.environ.get("OOLONG_SWITCHES", "{}"))
if unknown := set(SWITCHES) - {"reward_fails", "ships", "scripts", "jobs"}:
    raise ValueError(f"OOLONG_SWITCHES has {', '.join(sorted(unknown))}, which nothing reads")

if __name__ == "__main__":
    entry.Agent = SwitchedAgent  # type: ignore[attr-defined, misc]
    if SWITCHES.get("ships") is False:
        agent.TelemetryShipper = MuteShipper  # type: ignore[attr-defined, misc]
    sys.exit(entry.main())
