"""Finds out what has started the agent, and when its allocation of the machine ends."""

from __future__ import annotations

import logging
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from oolong.contracts.agent import Provider

log = logging.getLogger(__name__)

SLURM_SECONDS = 20.0  # for a command of Slurm
KILL_WAIT_SECONDS = 30.0  # Slurm's default between SIGTERM and SIGKILL


@dataclass(frozen=True)
class Allocation:
    """What the agent has of a machine, and from whom."""

    provider: Provider = Provider.MANUAL
    job: str = ""  # ID of the Slurm job, or name of the pod
    partition: str = ""
    account: str = ""
    ends_at: float | None = None  # unix seconds; None: not known, or never
    kill_seconds: float = 0.0  # from the provider's SIGTERM until it kills all processes; 0: it does not say


NO_ALLOCATION = Allocation()


def detect(chosen: str, environment: Mapping[str, str] = os.environ) -> Allocation:
    """The allocation, of the provider that was chosen or, with `auto`, of the one in the environment. Raises ValueError
    when the environment lacks what the chosen one sets."""
    provider = _in_environment(environment) if chosen == "auto" else Provider(chosen)
    if provider is Provider.SLURM:
        return _of_slurm(environment)
    if provider is Provider.KUBERNETES:  # the host name of a pod is its name
        return Allocation(provider, job=environment.get("POD_NAME") or socket.gethostname())
    return Allocation(provider)


def _in_environment(environment: Mapping[str, str]) -> Provider:
    if environment.get("SLURM_JOB_ID"):
        return Provider.SLURM
    return Provider.KUBERNETES if environment.get("KUBERNETES_SERVICE_HOST") else Provider.MANUAL


def _of_slurm(environment: Mapping[str, str]) -> Allocation:
    job = environment.get("SLURM_JOB_ID", "")
    if not job:
        raise ValueError(
            "--provider slurm, but SLURM_JOB_ID is not set: start the agent inside a Slurm job, or leave the option out"
        )
    return Allocation(
        Provider.SLURM,
        job=job,
        partition=environment.get("SLURM_JOB_PARTITION", ""),
        account=environment.get("SLURM_JOB_ACCOUNT", ""),
        ends_at=_end_of(job, environment),
        kill_seconds=_kill_wait(environment),
    )


def _end_of(job: str, environment: Mapping[str, str]) -> float | None:
    """Of Slurm 23.02 and later it is in the environment, of others squeue has it."""
    found = environment.get("SLURM_JOB_END_TIME", "")
    if not found:
        # %e is the local time without its zone, unless a format is given.
        found = _output_of(["squeue", "--noheader", f"--jobs={job}", "--format=%e"], environment, "%s")
    if found.isdecimal():
        return float(found)
    log.warning("when Slurm job %s ends is unknown (%r): runs are not moved off this node before", job, found)
    return None


def _kill_wait(environment: Mapping[str, str]) -> float:
    found = re.search(r"^KillWait\s*=\s*(\d+)", _output_of(["scontrol", "show", "config"], environment), re.M)
    return float(found[1]) if found else KILL_WAIT_SECONDS


def _output_of(command: list[str], environment: Mapping[str, str], time_format: str = "standard") -> str:
    """The output of a command of Slurm; empty, with a warning, when it fails."""
    try:
        return subprocess.run(
            command, env={**environment, "SLURM_TIME_FORMAT": time_format},
            capture_output=True, text=True, timeout=SLURM_SECONDS, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", None) or "").strip()
        log.warning("%s failed: %s", " ".join(command), detail or error)
        return ""
