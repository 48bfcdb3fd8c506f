"""What `oolong` exits with: stable, so that CI can branch on it."""

from __future__ import annotations

from enum import IntEnum

from oolong.client.errors import (
    BadAddress,
    Conflict,
    Gone,
    Invalid,
    NotAllowed,
    NotAuthenticated,
    NotConfigured,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from oolong.client.models import Run


class ExitCode(IntEnum):
    SUCCEEDED = 0
    UNEXPECTED = 1
    USAGE = 2  # wrong arguments, an invalid spec or dataset, what does not exist or does not allow this now
    TIMEOUT = 3
    AUTH = 4
    FAILED = 5  # the run failed by its own fault
    CHECK_FAILED = 6  # an assertion, a comparison or the gate of an alias did not hold
    STOPPED = 7
    INFRASTRUCTURE = 8  # not the run's fault, nor the caller's: safe to try again
    INTERRUPTED = 130


INFRASTRUCTURE_FAULTS = frozenset({"infra", "platform"})


def of_run(run: Run) -> ExitCode:
    """The exit code of a run that has ended, or that rests until somebody has looked (then 5)."""
    if run.status == "SUCCEEDED":
        return ExitCode.SUCCEEDED
    if run.status == "STOPPED":
        return ExitCode.STOPPED
    return ExitCode.INFRASTRUCTURE if run.fault in INFRASTRUCTURE_FAULTS else ExitCode.FAILED


def of_error(error: Exception) -> ExitCode:
    match error:
        case NotAuthenticated() | NotAllowed() | NotConfigured():
            return ExitCode.AUTH
        case Conflict(code="gate_failed" | "gate_missing"):
            return ExitCode.CHECK_FAILED
        case Invalid() | NotFound() | Conflict() | Gone() | BadAddress():
            return ExitCode.USAGE
        case Unreachable() | ServerError() | TooManyRequests():
            return ExitCode.INFRASTRUCTURE
        case TimeoutError():
            return ExitCode.TIMEOUT
        case _:
            return ExitCode.UNEXPECTED
