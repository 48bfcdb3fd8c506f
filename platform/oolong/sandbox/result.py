"""What came of a program or of a batch of tests in a sandbox."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Status(StrEnum):
    OK = "ok"  # ended by itself with exit status 0
    FAILED = "failed"  # ended by itself with another status: an exception, sys.exit(1)
    CPU_LIMIT = "cpu_limit"
    WALL_LIMIT = "wall_limit"
    MEMORY_LIMIT = "memory_limit"
    PROCESS_LIMIT = "process_limit"
    OUTPUT_LIMIT = "output_limit"
    KILLED = "killed"  # by a signal that no limit sent; its own doing
    NOT_RUN = "not_run"  # an earlier test failed, or the sandbox's whole time was over
    SANDBOX_ERROR = (
        "sandbox_error"  # the sandbox's own fault, never the program's: no verdict follows from it
    )


@dataclass(frozen=True, kw_only=True)
class TestResult:
    __test__ = False  # not a test case of pytest

    status: Status
    exit_code: int | None = None  # None when a signal ended it
    stdout: bytes = b""
    stderr: bytes = b""
    value: bytes | None = None  # what the program gave to `report`
    seconds: float = 0.0  # wall
    cpu_seconds: float = 0.0  # of all its processes


@dataclass(frozen=True, kw_only=True)
class SandboxResult:
    """Of one sandbox (or of the few that a batch took, when its programs broke one)."""

    tests: list[TestResult] = field(default_factory=list)
    error: str = ""  # of the sandbox itself; every test without an outcome is then `sandbox_error`
    seconds: float = 0.0  # wall, from the first process to the last one's end
    wait_seconds: float = 0.0  # for a free slot before that
    peak_memory_bytes: int | None = None  # where a cgroup counts it
    sandboxes: int = 1

    @property
    def only(self) -> TestResult:
        """Of a program: its one test."""
        (test,) = self.tests
        return test
