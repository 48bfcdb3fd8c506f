"""What the kernel says of a program in the sandbox while it runs, and what becomes of it when bubblewrap is killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oolong.sandbox import Limits, Program, Sandbox, SandboxResult, Status
from tests.sandbox.conftest import LIMITS
from tests.support.waiting import wait_until

FIRST_UID = 46_000
LONG = replace(LIMITS, cpu_seconds=600, wall_seconds=600, total_wall_seconds=600)


class Watched(Sandbox):
    """Says which process its bubblewrap is."""

    bubblewrap = -1

    def start(self, program: Program, limits: Limits, slot: int, files: Any) -> subprocess.Popen[bytes]:
        process = super().start(program, limits, slot, files)
        self.bubblewrap = process.pid
        return process


class Running:
    """A program that has begun and waits for a line."""

    def __init__(self, sandbox: Watched) -> None:
        self.sandbox = sandbox
        self.outcomes: list[SandboxResult] = []
        answer_out, self._answer = os.pipe()
        self._said, said_in = os.pipe()
        with open(answer_out, "rb") as stdin, open(said_in, "wb") as stdout:

            def play() -> None:
                program = Program(source="print('here', flush=True)\ninput()")
                self.outcomes.append(sandbox.run(program, LONG, stdin=stdin, stdout=stdout))

            self._thread = threading.Thread(target=play)
            self._thread.start()
            assert os.read(self._said, 100) == b"here\n"
            (self.first,) = children(sandbox.bubblewrap)
            (self.test,) = children(self.first)
            self._watched = os.pidfd_open(self.first)

    def first_has_ended(self) -> bool:
        poll = select.poll()
        poll.register(self._watched, select.POLLIN)
        return bool(poll.poll(60_000))

    def end(self) -> SandboxResult:
        os.write(self._answer, b"\n")
        self._thread.join()
        return self.outcomes[0]

    def close(self) -> None:
        if self._thread.is_alive():
            signal.pidfd_send_signal(self._watched, signal.SIGKILL)
            self._thread.join()
        for fd in (self._watched, self._answer, self._said):
            os.close(fd)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def limits_of(pid: int) -> dict[str, tuple[str, ...]]:
    """Soft and hard."""
    lines = Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]
    return {line[4:26].strip(): tuple(line[26:].split()[:2]) for line in lines}


@pytest.fixture
def running(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("PLANTED_SECRET", "in the environment of the service")
    watched = Watched(sandbox.runtime_files, sandbox.isolation, slots=1, first_uid=FIRST_UID)
    made = Running(watched)
    yield made
    made.close()


def test_a_program_has_no_right_no_name_and_no_environment_of_the_service(running: Running) -> None:
    status = status_of(running.test)
    sets = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
    assert [name for name in sets if int(status[name], 16)] == []
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    uid = FIRST_UID if os.geteuid() == 0 else os.geteuid()
    gid = FIRST_UID if os.geteuid() == 0 else os.getegid()
    assert set(status["Uid"].split()) == {str(uid)} and set(status["Gid"].split()) == {str(gid)}
    assert os.geteuid() != 0 or status["Groups"] == ""
    assert Path(f"/proc/{running.sandbox.bubblewrap}/environ").read_bytes() == b""
    assert b"PLANTED" not in Path(f"/proc/{running.test}/environ").read_bytes()
    ours, its = Path("/proc/self/ns"), Path(f"/proc/{running.test}/ns")
    names = ("user", "pid", "net", "ipc", "uts", "cgroup", "mnt")
    assert [name for name in names if os.readlink(ours / name) == os.readlink(its / name)] == []
    assert os.getsid(running.first) == running.first, "it has no terminal of ours"
    assert running.end().only.status is Status.OK


def test_sandboxes_of_one_time_share_no_uid(sandbox: Sandbox) -> None:
    if not sandbox.isolation.own_uid:
        pytest.skip("needs root: the service switches to a uid of its own for each sandbox")
    watched = Watched(sandbox.runtime_files, sandbox.isolation, slots=2, first_uid=FIRST_UID)
    one = Running(watched)
    try:
        other = Running(watched)
        uids = [status_of(running.test)["Uid"].split()[0] for running in (one, other)]
        other.end()
        other.close()
    finally:
        one.close()
    assert uids == [str(FIRST_UID), str(FIRST_UID + 1)]


def test_each_limit_of_a_program_is_what_was_asked_for(running: Running) -> None:
    wanted = {
        "cpu time": ("600", "601"),
        "address space": (str(LONG.memory_bytes + 512 * 1024**2),) * 2,
        "file size": (str(LONG.file_bytes),) * 2,
        "open files": (str(LONG.open_files),) * 2,
        "core file size": ("1", "1"),  # 0 does not keep a kernel from piping a core to a program
        "locked memory": ("0", "0"),
    }
    if running.sandbox.isolation.kernel_limits_processes:
        wanted["processes"] = (str(LONG.processes + 1),) * 2
    found = limits_of(running.test)
    assert {name: found[name] for name in wanted} == wanted
    cgroups = running.sandbox.isolation.cgroups
    if cgroups is not None:
        (group,) = (
            folder for folder in cgroups.remaining() if cgroups.kind == "cgroup v2" or "pids" in folder.parts
        )
        assert (group / "pids.max").read_text() == f"{LONG.processes + 1}\n"
        assert str(running.test) in (group / "cgroup.procs").read_text().split()


def test_bubblewrap_killed_by_others_takes_its_program_along_and_is_no_result_on_it(
    running: Running,
) -> None:
    os.kill(running.sandbox.bubblewrap, signal.SIGKILL)
    assert running.first_has_ended()
    wait_until(lambda: running.outcomes, "the call has come back")
    (outcome,) = running.outcomes
    assert outcome.only.status is Status.SANDBOX_ERROR
    assert outcome.error == "bubblewrap was killed, and not by this service"
