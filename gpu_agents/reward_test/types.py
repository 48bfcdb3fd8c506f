"""Data types of a reward test."""

from __future__ import annotations

from dataclasses import dataclass

MODEL, STORED = "model", "stored"  # other sources are the names of the probes


@dataclass(frozen=True, kw_only=True)
class Sample:
    row: int
    source: str  # model, stored, or the name of a probe
    prompt: str
    answer: str
    completion: str
    finish_reason: str = "stop"


@dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """The result of one scoring call: a score, or an error."""

    score: float | None
    seconds: float
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ScoredSample:
    """A sample scored twice, to detect non-deterministic rewards."""

    sample: Sample
    first: ScoreResult
    second: ScoreResult

    @property
    def score(self) -> float | None:
        return self.first.score

    @property
    def differs(self) -> bool:
        return self.first.score != self.second.score
