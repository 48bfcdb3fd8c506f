"""Run the policy's code in the reward service's sandbox and return the output as text for the policy."""

from __future__ import annotations

from oolong.contracts.rollout import ExecuteReply, ExecuteRequest
from oolong.system.rpc import RpcClient, RpcError, RpcUnavailable
from oolong.workflow import WorkflowFailed

QUEUE_SECONDS = 900.0  # a program may queue for a free sandbox behind the programs of all other groups


class SandboxUnavailable(Exception):
    """The reward service cannot run code. The message has the cause and the fix."""


class SandboxedPython:
    """Client of the reward service's POST /execute. Programs share no state."""

    def __init__(self, service: RpcClient, *, seconds: float) -> None:
        self._service = service
        self._seconds = seconds

    async def require(self) -> None:
        """Raise SandboxUnavailable unless programs can run. Called at start, before any prompt is sampled."""
        try:
            await self._request("1")
        except RpcError as error:
            raise SandboxUnavailable(str(error)) from error

    async def execute(self, code: str) -> str:
        """Return the program's output or its error. Raises WorkflowFailed only when the sandbox itself fails."""
        try:
            return observation(await self._request(code), seconds=self._seconds)
        except RpcError as error:
            if error.code == "too_large":
                return f"Error: {error}"
            raise WorkflowFailed("sandbox", str(error)) from error
        except RpcUnavailable as error:
            raise WorkflowFailed("sandbox", str(error)) from error

    async def _request(self, code: str) -> ExecuteReply:
        request = ExecuteRequest(code=code, wall_seconds=self._seconds)
        return await self._service.call(
            "execute", request, ExecuteReply, timeout=self._seconds + QUEUE_SECONDS
        )


def observation(reply: ExecuteReply, *, seconds: float) -> str:
    """Format stdout, the value of the last line, then stderr and the limit that ended the program."""
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
