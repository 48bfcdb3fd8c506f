"""Find and terminate jobs that still run under their job supervisors, without the agent."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from local_stack.configuration import child_environment, read_env_file
from local_stack.files import read_json
from local_stack.paths import Paths
from local_stack.services import agent_environment
from oolong.system.process_handle import ProcessHandle


@dataclass(frozen=True)
class SupervisedJob:
    """A live job, read from the file of its job supervisor."""

    job_id: str
    directory: str
    supervisor: ProcessHandle
    group: int | None  # process group of the job itself


def live_jobs(agent_data: Path) -> list[SupervisedJob]:
    """Jobs whose job supervisor is alive."""
    found = []
    folder = agent_data / "supervisors"
    for file in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        record = read_json(file)
        supervisor = _supervisor(record)
        if supervisor is not None:
            group = record.get("pgid")
            found.append(
                SupervisedJob(
                    job_id=file.stem,
                    directory=str(record.get("directory", "")),
                    supervisor=supervisor,
                    group=int(group) if group else None,
                )
            )
    return found


def _supervisor(record: dict[str, object]) -> ProcessHandle | None:
    """The live process named in the file, or None, also if its pid was reused."""
    pid, ticks, boot = record.get("pid"), record.get("start_ticks"), record.get("boot_id")
    if not isinstance(pid, int) or not isinstance(ticks, int):
        return None
    handle = ProcessHandle(pid, ticks, str(boot))
    return handle if handle.is_alive() else None


def terminate_all(paths: Paths, *, grace_seconds: float = 5.0) -> int:
    """Terminate all jobs of this clone and return how many ran.

    Calls the agent's `terminate-jobs`, which also finds processes whose job supervisor was killed, then kills what
    remains. `terminate-jobs` may take five seconds longer than the grace period.
    """
    folder = paths.agent_data / "supervisors"
    if not folder.is_dir() or not any(folder.glob("*.json")):
        return 0
    jobs = live_jobs(paths.agent_data)
    environment = agent_environment(child_environment(paths, read_env_file(paths)))
    words = [str(paths.venv_python), "-m", "gpu_agents.agent", "terminate-jobs"]
    words += ["--data-dir", str(paths.agent_data), "--grace", str(grace_seconds)]
    try:
        done = subprocess.run(
            words, env=environment, cwd=paths.root, capture_output=True, text=True, timeout=grace_seconds + 6
        )
        if done.returncode != 0:
            print(f"the agent's terminate-jobs failed: {done.stderr.strip()[-500:]}", flush=True)
    except (subprocess.TimeoutExpired, OSError) as error:
        print(f"the agent's terminate-jobs did not finish ({error}); killing the jobs' processes", flush=True)
    for job in live_jobs(paths.agent_data):
        for group in (job.group, job.supervisor.pid):
            if group is None:
                continue
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
    return len(jobs)
