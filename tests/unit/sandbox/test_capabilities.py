"""What a machine must be able to do before code of users runs on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oolong.sandbox import Capabilities, SandboxUnsupported, Status, bubblewrap, probe
from oolong.sandbox.result import SandboxResult, TestResult
from oolong.sandbox.runtime_files import RuntimeFiles

COMMAND = "sudo sysctl -w user.max_user_namespaces=15000"
WHOLE = Capabilities(
    user_namespace=True, seccomp=True, memory_bound="supervisor", process_bound="kernel", own_uid=False,
    message="something is missing", command=COMMAND,
)  # fmt: skip


def test_code_runs_when_every_limit_is_enforced() -> None:
    WHOLE.require()


@pytest.mark.parametrize(
    "without",
    [{"user_namespace": False}, {"seccomp": False}, {"memory_bound": "none"}, {"process_bound": "none"}],
    ids=lambda without: next(iter(without)),
)
def test_no_code_runs_with_a_limit_missing_and_the_error_names_the_command(without: dict[str, Any]) -> None:
    with pytest.raises(SandboxUnsupported, match=f"something is missing. Type: {COMMAND}"):
        replace(WHOLE, **without).require()
    assert replace(WHOLE, **without).as_json()["runs_code"] is False


def test_the_service_reports_each_capability_by_its_name() -> None:
    assert WHOLE.as_json() == {
        "user_namespace": True, "seccomp": True, "memory_bound": "supervisor", "process_bound": "kernel",
        "own_uid": False, "message": "something is missing", "command": COMMAND, "runs_code": True,
    }  # fmt: skip


def test_bubblewrap_must_make_a_user_namespace_and_never_goes_on_without() -> None:
    place = Path("/nowhere")
    runtime_files = RuntimeFiles(
        bubblewrap=place, python=place, library=place, shared_objects=(), version="3.11"
    )
    files = bubblewrap.Descriptors(
        guest_code=3, seccomp=4, status=5, block=6, job=7, results=8, control=9, stdin=-1, stdout=-1
    )
    words = bubblewrap.command(runtime_files, files, scratch_bytes=1, packages=(), socket=None)
    assert "--unshare-user" in words and "--unshare-net" in words
    assert not [word for word in words if word.endswith("-try") or word == "--unshare-all"]


STALLED = SandboxResult(tests=[TestResult(status=Status.WALL_LIMIT)])
BROKEN = SandboxResult(tests=[TestResult(status=Status.SANDBOX_ERROR)], error="bubblewrap made no sandbox")
REACHED = SandboxResult(tests=[TestResult(status=Status.MEMORY_LIMIT)])
DONE = SandboxResult(tests=[TestResult(status=Status.OK)])


class Answers:
    """A sandbox whose programs end as they are given."""

    def __init__(self, *results: SandboxResult) -> None:
        self.results = list(results)

    def run(self, program: object, limits: object) -> SandboxResult:
        return self.results.pop(0)


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ((DONE, BROKEN), DONE),
        ((REACHED, DONE), REACHED),
        ((STALLED, BROKEN, DONE), DONE),
        ((BROKEN, BROKEN, STALLED, DONE), STALLED),  # not for ever
    ],
)
def test_a_probe_that_a_stall_breaks_is_repeated(
    given: tuple[SandboxResult, ...], outcome: SandboxResult
) -> None:
    sandbox: Any = Answers(*given)
    assert probe._try(sandbox, "pass") is outcome
