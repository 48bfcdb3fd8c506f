"""The real agent with switches that only tests have: more environment for its jobs, or a deaf-mute outbox.

`python -m tests.support.switched_agent run --server … ` takes what `python -m gpu_agents.agent run` takes; the
switches come as JSON in OOLONG_SWITCHES: {"jobs": {"OOLONG_TEST_REWARDS": "1"}, "ships": false}. The product's own
agent reads no such variable: it gives its jobs a fixed environment, and has no way not to ship.
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
from gpu_agents.agent.launch import COMMANDS, Command, JobPlace
from gpu_agents.agent.shipping import Shipper
from oolong.contracts.lifecycle import JobKind


def with_environment(command: Command, variables: Mapping[str, str]) -> Command:
    words = ["/usr/bin/env", *(f"{name}={value}" for name, value in variables.items())]

    def changed(place: JobPlace) -> list[str]:
        return [*words, *command(place)]

    return changed


@dataclass
class MuteShipper(Shipper):
    """Sees everything that could be shipped, and ships nothing."""

    async def run(self, **_: object) -> None:
        await asyncio.Event().wait()


def commands(variables: Mapping[str, str]) -> Mapping[JobKind, Command]:
    return {kind: with_environment(command, variables) for kind, command in COMMANDS.items()}


class SwitchedAgent(agent.Agent):
    def __init__(self, settings: agent.AgentSettings, node: agent.Node) -> None:
        super().__init__(settings, node, commands=commands(SWITCHES.get("jobs", {})))


SWITCHES = json.loads(os.environ.get("OOLONG_SWITCHES", "{}"))

if __name__ == "__main__":
    entry.Agent = SwitchedAgent  # type: ignore[attr-defined, misc]
    if SWITCHES.get("ships") is False:
        agent.Shipper = MuteShipper  # type: ignore[attr-defined, misc]
    sys.exit(entry.main())
