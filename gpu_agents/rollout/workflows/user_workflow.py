"""A workflow of users: an uploaded file with `async def run(episode, …)`, run in a sandbox with one bound socket."""

from __future__ import annotations

import ast
from typing import Any

from gpu_agents.rollout.workflows.sandbox_host import Launcher, SandboxHost
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.workflow import Episode


class UserWorkflow:
    """`run` gives each episode a seat in a host; a host has as many as a group has members."""

    def __init__(self, source: str, options: dict[str, Any], launch: Launcher, *, seats: int) -> None:
        self._source = source
        self._options = options
        self._launch = launch
        self._seats = seats
        self._hosts: list[SandboxHost] = []

    @property
    def workflow(self) -> Workflow:
        return Workflow(run=self._run, migratable=declares_migratable(self._source), close=self.close)

    async def _run(self, episode: Episode) -> float:
        host = self._host_with_seat()
        number = host.reserve()
        return await host.play(number, episode)

    async def close(self) -> None:
        for host in self._hosts:
            await host.close()

    def _host_with_seat(self) -> SandboxHost:
        self._hosts = [host for host in self._hosts if not host.is_over]
        for host in self._hosts:
            if host.has_capacity:
                return host
        host = SandboxHost(self._source, self._options, self._launch, seats=self._seats)
        self._hosts.append(host)
        return host


def declares_migratable(source: str) -> bool:
    """False where the file says `MIGRATABLE = False` at its top level. It is read, not run."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        named = any(isinstance(target, ast.Name) and target.id == "MIGRATABLE" for target in targets)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if named and isinstance(value, ast.Constant) and value.value is False:
            return False
    return True
