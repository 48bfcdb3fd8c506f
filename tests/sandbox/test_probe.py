"""The start-up probe on machines that lack what a sandbox needs: it is taken away here on purpose.

A bound that does not bound is found by a program that passes it, and then no code of users is run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oolong.sandbox import (
    ProbeResult,
    Sandbox,
    SandboxUnsupported,
    cgroups,
    probe,
    probe_sandbox,
    resource_usage,
    seccomp,
)
from oolong.sandbox.capabilities import command_for_user_namespaces, in_container, read_kernel_settings
from oolong.sandbox.isolation import IsolationConfig

FIRST_UID = 47_000


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user can enter."""
    made = Path("/var/tmp") / f"oolong-probe-{os.getpid()}"
    made.mkdir(mode=0o755)
    yield made
    shutil.rmtree(made)


def refused(probe_result: ProbeResult) -> str:
    """The refusal; nothing falls back to running without."""
    assert probe_result.sandbox is None and not probe_result.capabilities.runs_code
    with pytest.raises(SandboxUnsupported) as error:
        probe_result.require()
    return str(error.value)


def test_without_a_user_namespace_code_is_refused_with_what_bubblewrap_said_and_the_command(
    sandbox: Sandbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = folder / "bwrap"
    script.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    script.chmod(0o755)
    runtime_files = replace(sandbox.runtime_files, bubblewrap=script)
    monkeypatch.setattr(probe, "find_runtime_files", lambda **_: runtime_files)
    probe_result = probe_sandbox(slots=1, first_uid=FIRST_UID)
    assert not probe_result.capabilities.user_namespace
    command = command_for_user_namespaces(read_kernel_settings(), in_container=in_container())
    said = refused(probe_result)
    assert "No permissions to create a new namespace" in said and said.endswith(f"Type: {command}")


def test_filter_that_allows_everything_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = seccomp._instruction(seccomp.GIVE, seccomp.ALLOW)
    monkeypatch.setattr(seccomp, "program", lambda: everything)
    probe_result = probe_sandbox(slots=1, first_uid=FIRST_UID)
    assert (probe_result.capabilities.user_namespace, probe_result.capabilities.seccomp) == (True, False)
    assert "does not filter system calls" in refused(probe_result)


def test_control_group_without_processes_does_not_limit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    if cgroups.find_cgroups() is None:
        pytest.skip("needs control groups that this user may make")
    monkeypatch.setattr(cgroups.Cgroup, "add", lambda group, pid: None)
    assert probe_sandbox(slots=1, first_uid=FIRST_UID).capabilities.memory_bound == "supervisor"


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that sees nothing, and no control groups."""
    monkeypatch.setattr(probe, "find_cgroups", lambda: None)
    monkeypatch.setattr(
        resource_usage, "measure_usage", lambda pid: resource_usage.Usage(memory_bytes=0, processes=0)
    )
    monkeypatch.setattr(probe, "_MEMORY", probe._MEMORY.replace("time.sleep(30)", "time.sleep(0.1)"))
    monkeypatch.setattr(probe, "_PROCESSES", probe._PROCESSES.replace("time.sleep(common)", "pass"))


@pytest.mark.usefixtures("blind")
def test_supervisor_without_usage_data_limits_nothing(sandbox: Sandbox) -> None:
    def counting(isolation: IsolationConfig) -> Sandbox:
        """As on a kernel that does not bound processes by itself."""
        counted = replace(isolation, kernel_limits_processes=False)
        return Sandbox(sandbox.runtime_files, counted, slots=1, first_uid=FIRST_UID)

    isolation = replace(sandbox.isolation, cgroups=None)
    assert probe._memory_bound(isolation, counting)[1] == "none"
    assert probe._process_bound(isolation, counting)[1] == "none"


@pytest.mark.usefixtures("blind")
def test_no_code_runs_without_a_memory_limit() -> None:
    probe_result = probe_sandbox(slots=1, first_uid=FIRST_UID)
    assert (probe_result.capabilities.seccomp, probe_result.capabilities.memory_bound) == (True, "none")
    assert "cannot be bounded" in refused(probe_result)
