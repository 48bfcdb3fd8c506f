"""The nouns of a gate: what was checked, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    INVESTIGATE = "investigate"  # worse than tolerated, but within the noise


@dataclass(frozen=True)
class Check:
    """One assertion or comparison."""

    kind: str  # run, assertion, comparison
    name: str  # as the report shows it
    verdict: Verdict
    why: str  # one line, with the numbers
    value: float | None = None
    baseline: float | None = None
    noise: float | None = None  # half the width of the band


def worst(checks: list[Check]) -> Verdict:
    found = {check.verdict for check in checks}
    for verdict in (Verdict.FAIL, Verdict.INVESTIGATE):
        if verdict in found:
            return verdict
    return Verdict.PASS
