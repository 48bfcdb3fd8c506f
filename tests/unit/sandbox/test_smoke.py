"""A short look at the sandbox in the ordinary lane; the attacks and the bounds are in tests/sandbox."""

from __future__ import annotations

import pytest

from oolong.sandbox import Limits, Program, Sandbox, Status, Test, box, examine

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
    findings = examine(slots=1)
    if findings.sandbox is None:
        pytest.skip(f"no sandbox here: {findings.capabilities.message}; {findings.capabilities.command}")
    return findings.sandbox


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


def test_a_sandbox_that_was_made_while_this_process_stood_still_is_one(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "START_SECONDS", 0.0)  # over before its first look
    monkeypatch.setattr(box, "LOOK_SECONDS", 60.0)
    assert sandbox.run(Program(source="report(1)"), LIMITS).only.value == b"1"
