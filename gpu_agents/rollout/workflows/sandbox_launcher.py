"""Launch uploaded workflows in the sandbox; the only launcher in production."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from gpu_agents.rollout.workflows.sandbox_host import Launcher
from oolong.sandbox import GUEST_SOCKET, MEBIBYTE, Limits, Program, Sandbox, Status, probe_sandbox

DAY_SECONDS = 86_400.0
# Per host. Wall time covers as long as the engine needs for a group; `sandbox_host.IDLE_SECONDS` bounds the time
# between two calls.
LIMITS = Limits(
    cpu_seconds=900,
    wall_seconds=DAY_SECONDS,
    total_wall_seconds=DAY_SECONDS,
    memory_bytes=512 * MEBIBYTE,
    processes=16,
)
FIRST_UID = 31_000  # above the uids of the reward service
MAX_SLOTS = 64


def require_sandbox(*, worker: int, slots: int) -> Sandbox:
    """This machine's sandbox for one worker. Raises SandboxUnsupported with what is missing and the fix."""
    slots = min(slots, MAX_SLOTS)
    return probe_sandbox(slots=slots, first_uid=FIRST_UID + worker * MAX_SLOTS).require()


def sandbox_launcher(sandbox: Sandbox) -> Launcher:
    def launch(program: str, common: dict[str, Any], socket: Path, stop: threading.Event) -> str:
        inside = {**common, "socket": GUEST_SOCKET}
        outcome = sandbox.run(Program(source=program, common=inside, socket=socket), LIMITS, stop=stop)
        if outcome.error:
            return f"the sandbox failed: {outcome.error}"
        ended = outcome.only
        if stop.is_set() or ended.status is Status.OK:
            return ""
        stderr = ended.stderr.decode(errors="replace").strip()[-500:]
        return f"it ended with {ended.status}, exit status {ended.exit_code}: {stderr}"

    return launch
