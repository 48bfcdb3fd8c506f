"""An uploaded workflow: a file with `async def run(episode, …)`, run in a sandbox with one bound socket."""

from __future__ import annotations

import ast
from typing import Any

from gpu_agents.rollout.workflows.sandbox_host import Launcher, SandboxHost
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.workflow import Episode


class UserWorkflow:
    """Runs each episode in a sandbox host. A host has capacity for one group's rollouts."""

    def __init__(self, source: str, options: dict[str, Any], launch: Launcher, *, host_capacity: int) -> None:
        self._source = source
        self._options = options
        self._launch = launch
        self._host_capacity = host_capacity
        self._hosts: list[SandboxHost] = []

    @property
    def workflow(self) -> Workflow:
        return Workflow(run=self._run, migratable=declares_migratable(self._source), close=self.close)

    async def _run(self, episode: Episode) -> float:
        host = self._host_with_capacity()
        number = host.reserve()
        return await host.run(number, episode)

    async def close(self) -> None:
        for host in self._hosts:
            await host.close()

    def _host_with_capacity(self) -> SandboxHost:
        self._hosts = [host for host in self._hosts if not host.has_ended]
        for host in self._hosts:
            if host.has_capacity:
                return host
        host = SandboxHost(self._source, self._options, self._launch, capacity=self._host_capacity)
        self._hosts.append(host)
        return host


def declares_migratable(source: str) -> bool:
    """False if the file sets `MIGRATABLE = False` at its top level. Parses the file without running it."""
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        named = any(isinstance(target, ast.Name) and target.id == "MIGRATABLE" for target in targets)
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if named and isinstance(value, ast.Constant) and value.value is False:
            return False
    return True
