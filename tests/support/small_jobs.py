"""Jobs for tests of the agent: small scripts in place of trainers and engines, started by the same supervisor.

`AGENT` is run as a process of its own, like the real `python -m gpu_agents.agent run`, but with this table of
commands handed to `Agent`, so that it can be killed and started again.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from gpu_agents.agent.__main__ import REVOKED_STATUS
from gpu_agents.agent.agent import Agent
from gpu_agents.agent.heartbeat import NodeRevoked
from gpu_agents.agent.identity import enroll
from gpu_agents.agent.launch import JobContext
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from gpu_agents.agent.terminate_jobs import lock_data_directory
from oolong.contracts.lifecycle import JobKind

ROOT = Path(__file__).resolve().parents[2]
PR_SET_PDEATHSIG = 1
MODULE = "tests.support.small_jobs"


def command_of(place: JobContext) -> list[str]:
    """A script named by the spec's notes, or the one that writes points until it is stopped."""
    arguments = ["--attempt", str(place.attempt_file), "--job", str(place.job_directory)]
    return [sys.executable, str(ROOT / "tests" / "support" / "small_job.py"), *arguments]


COMMANDS = dict.fromkeys(JobKind, command_of)


def start_agent(
    server: str,
    data_directory: Path,
    *,
    token: str = "",
    name: str = "node",
    slots: int = 2,
    peer_address: str = "",
    log: Path | None = None,
) -> subprocess.Popen[bytes]:
    """The agent as a process of its own, in its own session. It dies with the tests; its jobs do not."""
    output = (log or data_directory.with_suffix(".log")).open("ab")
    with output:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                MODULE,
                server,
                str(data_directory),
                token,
                name,
                str(slots),
                peer_address,
            ],
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
                "HOME": str(data_directory),
            },
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def _main(
    server: str, directory: str, token: str, name: str, slots: str, peer_address: str = ""
) -> None:
    settings = AgentSettings(
        server=server,
        data_directory=Path(directory),
        node_python=sys.executable,
        name=name,
        slots=int(slots),
        join_token=token,
        model_roots=("/",),
        job_paths=(str(ROOT / "tests"),),
        peer_address=peer_address,
    )
    data = DataDirectory(settings.data_directory)
    data.create()
    with lock_data_directory(data):
        task = asyncio.create_task(_serve(settings))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return
        except NodeRevoked as revoked:
            print(revoked, file=sys.stderr)
            sys.exit(REVOKED_STATUS)


async def _serve(settings: AgentSettings) -> None:
    await Agent(settings, await enroll(settings), commands=COMMANDS).run()


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(_main(*sys.argv[1:]))
