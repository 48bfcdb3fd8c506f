"""Types of regression checks: what was checked, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RegressionResult(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INVESTIGATE = "investigate"  # undecided: the data do not show whether it is worse than tolerated


@dataclass(frozen=True)
class Check:
    """One assertion or comparison."""

    kind: str  # run, assertion, comparison
    name: str  # as the report shows it
    result: RegressionResult
    why: str  # one line, with the numbers
    value: float | None = None
    baseline: float | None = None
    noise: float | None = None  # differences up to this may be noise
    error: bool = (
        False  # of the run itself: no answer (timeout, interrupt, infrastructure), rather than a bad one
    )


def worst(checks: list[Check]) -> RegressionResult:
    found = {check.result for check in checks}
    for result in (RegressionResult.FAIL, RegressionResult.INVESTIGATE):
        if result in found:
            return result
    return RegressionResult.PASS
