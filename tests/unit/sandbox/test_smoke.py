"""A short look at the sandbox in the ordinary lane; the attacks and the bounds are in tests/sandbox."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oolong.sandbox import Limits, Program, Sandbox, Status, Test, probe_sandbox, supervisor
from tests.support.isolation import sandbox_or_skip
from tests.support.waiting import wait_until

LIMITS = Limits(cpu_seconds=30, wall_seconds=60, memory_bytes=128 * 1024**2, processes=8)
CUT_OFF = """
import os, socket
got = []
try:
    socket.socket(socket.AF_INET)
    got.append("network")
except OSError:
    pass
got += [path for path in ("/etc/passwd", "/root", "/home", "/proc/1", "/sys") if os.path.exists(path)]
try:
    open("/usr/planted", "w")
    got.append("a file")
except OSError:
    pass
report(got)
"""


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    probe_result = probe_sandbox(slots=1)
    return sandbox_or_skip(probe_result)


def test_a_program_runs_cut_off_from_the_machine(sandbox: Sandbox) -> None:
    test = sandbox.run(Program(source=CUT_OFF), LIMITS).only
    assert (test.status, test.value) == (Status.OK, b"[]"), test


def test_tests_are_forked_in_one_sandbox_and_a_flood_is_stopped(sandbox: Sandbox) -> None:
    source = "while payload == 'flood': print('x' * 100)\nprint(input())"
    tests = (Test(payload="", stdin=b"1"), Test(payload="flood"), Test(payload="", stdin=b"3"))
    outcome = sandbox.run(Program(source=source, tests=tests), LIMITS)
    assert [test.status for test in outcome.tests] == [Status.OK, Status.OUTPUT_LIMIT, Status.OK]
    assert (outcome.tests[0].stdout, outcome.tests[2].stdout) == (b"1\n", b"3\n")
    assert outcome.sandboxes == 1


def test_sandbox_created_during_a_stall_is_used(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.0)  # over before its first look
    monkeypatch.setattr(supervisor, "MIN_POLL_SECONDS", 60.0)
    assert sandbox.run(Program(source="report(1)"), LIMITS).only.value == b"1"


class Frozen(Sandbox):
    """Its bubblewrap has made its child and stands still before it lets it go: what it wants to say in between
    goes into a pipe that is full. `killed`: somebody then kills it."""

    killed = False
    child = -1

    def start(self, program: Program, limits: Limits, slot: int, files: Any) -> subprocess.Popen[bytes]:
        _, full = files._pipe()
        os.set_blocking(full, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, bytes(65536))
        os.set_blocking(full, True)
        if self.killed:
            files.passed.remove(files.descriptors.status)  # whose end then shows
        files.descriptors = replace(files.descriptors, status=full)
        files.passed.append(full)
        process = super().start(program, limits, slot, files)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_until(children.read_text, "bubblewrap has a child")
        self.child = os.pidfd_open(int(children.read_text()))
        if self.killed:
            process.kill()
        return process


@pytest.fixture
def frozen(sandbox: Sandbox) -> Iterator[Frozen]:
    made = Frozen(sandbox.runtime_files, sandbox.isolation, slots=1)
    yield made
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(made.child, signal.SIGKILL)
    os.close(made.child)


@pytest.mark.parametrize("killed", [False, True], ids=["it_stands_still", "somebody_kills_it"])
def test_bubblewrap_that_exits_early_leaves_no_child(
    frozen: Frozen, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen.killed = killed
    monkeypatch.setattr(supervisor, "START_SECONDS", 60.0 if killed else 0.0)
    monkeypatch.setattr(supervisor, "MIN_POLL_SECONDS", 0.0)
    outcome = frozen.run(Program(source="pass"), LIMITS)
    assert outcome.only.status is Status.SANDBOX_ERROR
    assert ("it ended with -9" if killed else "did not make a sandbox within 0 s") in outcome.error
    gone = select.poll()
    gone.register(frozen.child, select.POLLIN)
    assert gone.poll(60_000), "the child is alive"


def test_a_service_that_may_leave_no_core_file_has_sandboxes_too(sandbox: Sandbox) -> None:
    """Its hard limit is 0, as under systemd's LimitCORE=0, and cannot be raised."""
    program = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from oolong.sandbox import probe_sandbox
capabilities = probe_sandbox(slots=1).capabilities
print(capabilities.runs_code, capabilities.message)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stdout == "True \n", done


def test_a_service_with_more_than_a_thousand_open_files_has_sandboxes_too(sandbox: Sandbox) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened: list[int] = []
    try:
        while not opened or opened[-1] < 1100:
            opened.append(os.open("/dev/null", os.O_RDONLY))
        assert sandbox.run(Program(source="report(1)"), LIMITS).only.value == b"1"
    finally:
        for fd in opened:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
