"""What the agent finds out about the machine that it was given."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_agents.agent.provider import KILL_WAIT_SECONDS, Allocation, detect
from oolong.contracts.agent import Provider

SLURM = {"SLURM_JOB_ID": "42", "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_ACCOUNT": "rl"}


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """The environment of a Slurm job whose squeue knows its end, and whose scontrol knows the configuration."""
    commands = {
        "squeue": 'test "$SLURM_TIME_FORMAT" = %s && echo "$*" | grep -q -- "--jobs=42 --format=%e" && echo 1795687778',
        "scontrol": "printf 'KeepAliveTime = SYSTEM_DEFAULT\\nKillWait                = 45 sec\\n'",
    }
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    return {**SLURM, "PATH": f"{tmp_path}:/usr/bin:/bin"}


def test_an_agent_that_nothing_else_has_started_is_manual() -> None:
    assert detect("auto", {}) == Allocation(Provider.MANUAL)
    assert detect("local", SLURM) == Allocation(Provider.LOCAL), "the choice wins over the environment"


def test_a_slurm_job_is_known_with_its_end(slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", slurm["PATH"])
    found = Allocation(Provider.SLURM, "42", "gpu", "rl", ends_at=1795687778.0, kill_seconds=45.0)
    assert detect("auto", slurm) == found
    assert detect("slurm", {**slurm, "SLURM_JOB_END_TIME": "1800000000"}).ends_at == 1800000000.0


def test_without_slurms_commands_the_end_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = detect("auto", {**SLURM, "PATH": str(tmp_path)})
    assert (found.ends_at, found.kill_seconds) == (None, KILL_WAIT_SECONDS)


def test_slurm_outside_of_a_slurm_job_is_refused() -> None:
    with pytest.raises(ValueError, match="SLURM_JOB_ID is not set"):
        detect("slurm", {})


def test_a_pod_has_the_name_that_it_was_given() -> None:
    found = detect("auto", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": "agent-0"})
    assert (found.provider, found.job) == (Provider.KUBERNETES, "agent-0")
