"""Jobs that an agent left running under their supervisors: finding and ending them without the agent."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from local_stack.configuration import child_environment, read_env_file
from local_stack.files import read_json
from local_stack.identity import Identity, identity_of
from local_stack.places import Places
from local_stack.services import agent_environment


@dataclass(frozen=True)
class SupervisedJob:
    """A live job as its supervisor's file tells it."""

    job_id: str
    directory: str
    supervisor: Identity
    group: int | None  # process group of the job itself


def live_jobs(agent_data: Path) -> list[SupervisedJob]:
    """Jobs whose supervisor is alive."""
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
                    directory=str(record.get("job_directory") or record.get("directory") or ""),
                    supervisor=supervisor,
                    group=int(group) if group else None,
                )
            )
    return found


def _supervisor(record: dict[str, object]) -> Identity | None:
    """The live process of a supervisor's file; a pid that was reused since does not count."""
    pid, ticks = record.get("pid"), record.get("start_ticks", record.get("start_time"))
    if not isinstance(pid, int):
        return None
    identity = identity_of(pid)
    if identity is None or (ticks is not None and str(identity.start_ticks) != str(ticks)):
        return None
    return identity


def end_all(places: Places, *, grace_seconds: float) -> int:
    """End every job of this clone: gracefully by the agent's own command, then by force. Returns how many."""
    jobs = live_jobs(places.agent_data)
    if not jobs:
        return 0
    environment = agent_environment(child_environment(places, read_env_file(places)))
    words = [str(places.venv_python), "-m", "gpu_agents.agent", "end-jobs"]
    words += ["--data-dir", str(places.agent_data)]
    deadline = time.monotonic() + grace_seconds
    try:
        subprocess.run(
            words,
            env=environment,
            cwd=places.root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=grace_seconds,
        )
    except (subprocess.TimeoutExpired, OSError):
        print("the agent's end-jobs did not finish; ending the jobs' processes", flush=True)
    while any(job.supervisor.is_alive() for job in jobs) and time.monotonic() < deadline:
        time.sleep(0.1)
    for job in live_jobs(places.agent_data):
        for group in (job.group, job.supervisor.pid):
            if group is None:
                continue
            try:
                os.killpg(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
    return len(jobs)
