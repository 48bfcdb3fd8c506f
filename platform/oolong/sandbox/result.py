"""Results of a program or a batch of tests that ran in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"  # exited with status 0
    FAILED = "failed"  # exited with another status: an exception, sys.exit(1)
    CPU_LIMIT = "cpu_limit"
    WALL_LIMIT = "wall_limit"
    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"  # by a signal that no limit sent
    NOT_RUN = "not_run"  # an earlier test failed, or the total time ran out
    SANDBOX_ERROR = "sandbox_error"  # the sandbox failed, not the program: the result says nothing about it


@dataclass(frozen=True, kw_only=True)
class TestResult:
    __test__ = False  # not a test case of pytest

    status: Status
    exit_code: int | None = None  # None if a signal ended the test
    stdout: bytes = b""
    stderr: bytes = b""
    value: bytes | None = None  # JSON passed to `report`
    seconds: float = 0.0  # wall
    cpu_seconds: float = 0.0  # of all its processes


@dataclass(frozen=True, kw_only=True)
class SandboxResult:
    """Result of one `Sandbox.run`, which starts another sandbox whenever a test breaks one."""

    tests: list[TestResult] = field(default_factory=list)
    error: str = ""  # of the sandbox; every test without a result then has status `sandbox_error`
    seconds: float = 0.0  # wall time, from the first process to the end of the last
    wait_seconds: float = 0.0  # time spent waiting for a free slot
    peak_memory_bytes: int | None = None  # None without a cgroup
    sandboxes: int = 1

    @property
    def only(self) -> TestResult:
        """The result of a program with one test."""
        (test,) = self.tests
        return test
