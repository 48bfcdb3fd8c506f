"""Readings of slots: what a job's processes use, and processes of others on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gpu_agents.agent.processes import MARK
from gpu_agents.agent.slot_readings import CpuReadings, job_of, parse_compute_apps, with_foreign_processes
from oolong.contracts.agent import SlotInventory
from tests.support.waiting import wait_until

BUSY = "while True: pass"
CHILD_WITHOUT_MARK = """
import os, subprocess, sys
plain = {name: value for name, value in os.environ.items() if name != "OOLONG_JOB"}
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], env=plain, stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def busy() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the job `job_busy` that uses a core."""
    process = subprocess.Popen([sys.executable, "-c", BUSY], env={**os.environ, MARK: "job_busy"})
    wait_until(lambda: job_of(process.pid) == "job_busy", "the mark of the job")
    yield process
    process.kill()
    process.wait()


def cpu_slots(count: int) -> list[SlotInventory]:
    return [SlotInventory(slot=f"cpu-{number}", device="cpu") for number in range(count)]


def test_a_slot_has_the_use_of_the_job_that_holds_it(busy: subprocess.Popen[bytes]) -> None:
    now = [0.0]
    readings = CpuReadings(lambda: now[0])
    held = {"job_busy": ["cpu-0"], "job_gone": ["cpu-1"]}
    first, gone, free = readings.take(cpu_slots(3), held)
    assert (first.utilization, gone.memory_used_bytes, free.utilization) == (None, 0, 0.0)
    assert first.memory_used_bytes is not None and first.memory_used_bytes > 2**20
    # A second of CPU time in an hour, and at least that in a thousandth of a second.
    wait_until(lambda: _cpu_seconds(busy.pid) > 0.1, "some CPU time")
    now[0] = 0.001
    assert readings.take(cpu_slots(3), held)[0].utilization == 1.0
    now[0] = 3600.0
    quiet = readings.take(cpu_slots(3), held)[0].utilization
    assert quiet is not None and quiet < 0.5


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_processes_without_a_jobs_mark_occupy_a_gpu(busy: subprocess.Popen[bytes]) -> None:
    missing = 2**22 + 1  # above the largest pid
    text = f"GPU-1, {os.getpid()}, 512\nGPU-1, {busy.pid}, 1024\nGPU-2, {missing}, 5\nno, line\n"
    found = parse_compute_apps(text)
    assert list(found) == ["GPU-1"], "a pid of the host of a container says nothing"
    (process,) = found["GPU-1"]
    assert (process.pid, process.memory_bytes) == (os.getpid(), 512 * 1024**2)
    assert "python" in process.command or "pytest" in process.command
    shares = [SlotInventory(slot=f"GPU-1/{number}", device="cuda") for number in range(2)]
    alone = SlotInventory(slot="GPU-2", device="cuda")
    occupied = with_foreign_processes([*shares, alone], found)
    assert [len(slot.occupied_by) for slot in occupied] == [1, 1, 0]


def test_a_process_below_one_with_a_mark_is_of_the_job() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD_WITHOUT_MARK], env={**os.environ, MARK: "job_parent"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert job_of(child) == "job_parent" and parse_compute_apps(f"GPU-1, {child}, 5\n") == {}


def test_an_agent_reads_two_tables_of_nvidia_smi(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, busy: subprocess.Popen[bytes]
) -> None:
    from gpu_agents.agent import inventory

    script = f"""#!/bin/sh
case "$1" in
  --query-gpu=*) echo '0, GPU-1, H100, 80000, Disabled, 12, 600, 33, 0';;
  --query-compute-apps=*) echo 'GPU-1, {os.getpid()}, 600';;
esac
"""
    program = os.path.join(str(tmp_path), "nvidia-smi")
    with open(program, "w") as file:
        file.write(script)
    os.chmod(program, 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (slot,) = inventory.gpu_slots()
    assert (slot.utilization, slot.celsius, slot.healthy) == (0.12, 33.0, True)
    assert [process.pid for process in slot.occupied_by] == [os.getpid()]
