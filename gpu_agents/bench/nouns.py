"""What is scored, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

MODEL, STORED = "model", "stored"  # besides these, the names of the cheats


@dataclass(frozen=True, kw_only=True)
class Sample:
    row: int
    source: str  # model, stored, or the name of a cheat
    prompt: str
    answer: str
    completion: str
    finish_reason: str = "stop"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One scoring call: a score, or the reason why there is none."""

    score: float | None
    seconds: float
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A sample scored twice, so that a reward that changes its mind is seen."""

    sample: Sample
    first: Outcome
    second: Outcome

    @property
    def score(self) -> float | None:
        return self.first.score

    @property
    def differs(self) -> bool:
        return self.first.score != self.second.score
