"""One program's processes and another's result: time is bounded for all processes of a sandbox together, and time that
others took is nobody's fault. With control groups, and as where there are none."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from oolong.sandbox import Limits, Program, Sandbox, SandboxResult, Status, Test
from tests.sandbox.conftest import PATIENT

FIRST_UID = 46_000
HOGS = 4
# Each child tries to get a session of its own: where the kernel deals out time by session, it would get more of it.
HOG = """
import os
for _ in range(4):
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        while True:
            pass
while True:
    os.wait()
"""
HONEST = """
import time
while time.process_time() < 1.0:
    pass
report("solved")
"""
Make = Callable[[int], Sandbox]


@pytest.fixture(params=["control groups", "no control groups"])
def new_sandbox(request: pytest.FixtureRequest, sandbox: Sandbox) -> Make:
    isolation = sandbox.isolation  # a user may have no control groups; then both are without
    if request.param == "no control groups":
        isolation = replace(isolation, cgroups=None)
    return lambda slots: Sandbox(sandbox.runtime_files, isolation, slots=slots, first_uid=FIRST_UID)


@pytest.mark.core
def test_an_honest_solution_beside_four_hogs_is_never_over_its_time(new_sandbox: Make) -> None:
    """It ends well, or the machine was too busy to tell: that is the sandbox's error, which is tried again."""
    sandbox = new_sandbox(HOGS + 1)
    stop = threading.Event()
    limits = replace(PATIENT, cpu_seconds=50, wall_seconds=60)
    hogs = [
        threading.Thread(target=sandbox.run, args=(Program(source=HOG), limits), kwargs={"stop": stop})
        for _ in range(HOGS)
    ]
    for hog in hogs:
        hog.start()
    outcome = sandbox.run(Program(source=HONEST), Limits(cpu_seconds=6, wall_seconds=2))
    stop.set()
    for hog in hogs:
        hog.join()
    assert outcome.only.status in (Status.OK, Status.SANDBOX_ERROR), outcome
    if outcome.only.status is Status.SANDBOX_ERROR:
        assert "had the cores" in outcome.error
    else:
        assert outcome.only.value == b'"solved"'


@pytest.mark.core
@pytest.mark.parametrize(
    "source",
    [HOG, "import os, time\nwhile True:\n    if os.fork() == 0:\n        while time.process_time() < 0.3: pass\n"
          "        os._exit(0)\n    os.wait()"],
    ids=["at_once", "one_after_the_other"],
)  # fmt: skip
def test_all_processes_of_a_test_share_its_time(new_sandbox: Make, source: str) -> None:
    limits = replace(PATIENT, cpu_seconds=1)
    program = Program(
        source=f"if payload:\n    report(1)\nelse:\n    exec({source!r})", tests=(Test(), Test(payload=1))
    )
    outcome = new_sandbox(1).run(program, limits)
    assert [test.status for test in outcome.tests] == [Status.CPU_LIMIT, Status.OK], outcome
    assert outcome.seconds < limits.wall_seconds


def test_a_sandbox_has_one_core(new_sandbox: Make) -> None:
    sandbox = new_sandbox(1)
    if sandbox.isolation.cgroups is None or "cpu" not in sandbox.isolation.cgroups.controllers:
        pytest.skip("needs a control group of cores")
    source = """
import os, time
began = time.monotonic()
for _ in range(4):
    if os.fork() == 0:
        while time.monotonic() < began + 2: pass
        os._exit(0)
for _ in range(4):
    os.wait()
used = os.times()
report([used.children_user + used.children_system, time.monotonic() - began])
"""
    used, took = eval(run_ok(sandbox, source).only.value or b"")
    assert used < 1.2 * took


def run_ok(sandbox: Sandbox, source: str) -> SandboxResult:
    outcome = sandbox.run(Program(source=source), PATIENT)
    assert outcome.only.status is Status.OK, outcome
    return outcome


def test_a_program_that_sleeps_is_over_its_time_by_its_own_doing(new_sandbox: Make) -> None:
    limits = replace(PATIENT, wall_seconds=0.5)
    assert (
        new_sandbox(1).run(Program(source="import time\ntime.sleep(60)"), limits).only.status
        is Status.WALL_LIMIT
    )


def test_a_program_cannot_starve_itself(new_sandbox: Make) -> None:
    """Its processes wait for one another on one core: that is its own time, and no error of the sandbox."""
    source = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
for _ in range(3):
    if os.fork() == 0:
        break
while True:
    pass
"""
    outcome = new_sandbox(1).run(Program(source=source), replace(PATIENT, cpu_seconds=2, wall_seconds=30))
    assert outcome.only.status is Status.CPU_LIMIT, outcome
