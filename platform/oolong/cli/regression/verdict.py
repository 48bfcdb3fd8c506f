"""The nouns of a gate: what was checked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INVESTIGATE = "investigate"  # the data cannot tell whether it is worse than tolerated


@dataclass(frozen=True)
class Check:
    """One assertion or comparison."""

    kind: str  # run, assertion, comparison
    name: str  # as the report shows it
    verdict: Verdict
    why: str  # one line, with the numbers
    value: float | None = None
    baseline: float | None = None
    noise: float | None = None  # differences up to this may be noise
    error: bool = (
        False  # of the run itself: no answer (timeout, interrupt, infrastructure), rather than a bad one
    )


def worst(checks: list[Check]) -> Verdict:
    found = {check.verdict for check in checks}
    for verdict in (Verdict.FAIL, Verdict.INVESTIGATE):
        if verdict in found:
            return verdict
    return Verdict.PASS
