"""Code of the policy, run by the reward service in its sandbox: what came of it, as text for the policy."""

from __future__ import annotations

from gpu_agents.channel import CallRefused, Peer, PeerGone
from oolong.contracts.rollout import ExecuteReply, ExecuteRequest
from oolong.workflow import WorkflowFailed

QUEUE_SECONDS = 900.0  # a program may have to wait for a free sandbox behind those of every other group


class SandboxUnavailable(Exception):
    """The reward service runs no code; the message says why, and what would change it."""


class SandboxedPython:
    """POST /execute of the reward service. Nothing is kept between two programs."""

    def __init__(self, service: Peer, *, seconds: float) -> None:
        self._service = service
        self._seconds = seconds

    async def require(self) -> None:
        """Raise SandboxUnavailable unless a program can be run: known before the first prompt costs anything."""
        try:
            await self._ask("1")
        except CallRefused as error:
            raise SandboxUnavailable(str(error)) from error

    async def execute(self, code: str) -> str:
        """What a program printed and how it failed are answers; only the sandbox's own fault is WorkflowFailed."""
        try:
            return observation(await self._ask(code), seconds=self._seconds)
        except CallRefused as error:
            if error.code == "too_large":
                return f"Error: {error}"
            raise WorkflowFailed("sandbox", str(error)) from error
        except PeerGone as error:
            raise WorkflowFailed("sandbox", str(error)) from error

    async def _ask(self, code: str) -> ExecuteReply:
        request = ExecuteRequest(code=code, wall_seconds=self._seconds)
        return await self._service.call(
            "execute", request, ExecuteReply, timeout=self._seconds + QUEUE_SECONDS
        )


def observation(reply: ExecuteReply, *, seconds: float) -> str:
    """Output, then the value of the last line, then the error or the limit that ended it."""
    parts = [reply.stdout.rstrip("\n"), reply.value or ""]
    if reply.status != "ok":
        parts += [reply.stderr.rstrip("\n"), _LIMITS.get(reply.status, "").format(seconds=seconds)]
    return "\n".join(part for part in parts if part) or "(no output)"


_LIMITS = {
    "cpu_limit": "Error: the program ran longer than {seconds:g} s",
    "wall_limit": "Error: the program ran longer than {seconds:g} s",
    "memory_limit": "Error: the program used too much memory",
    "process_limit": "Error: the program started too many processes",
    "output_limit": "Error: the program wrote too much",
    "killed": "Error: the program was killed",
}
