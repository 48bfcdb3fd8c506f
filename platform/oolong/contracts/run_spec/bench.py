"""The test of a reward: what is scored, and what the report calls a success."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section

CheatName = Literal["empty", "repeated", "echo", "leaked_answer", "all_answers", "longest"]


class BenchSection(Section):
    """Of kind: bench. Submitted by POST /api/v1/reward-tests."""

    rows: PositiveInt = Field(32, description="dataset rows, from the first on")
    samples: NonNegativeInt = Field(
        0, description="completions sampled per row from the model, on a slot; 0 takes no slot"
    )
    temperature: PositiveFloat = Field(1.0, description="of those samples")
    max_new_tokens: PositiveInt = Field(4096, description="their length at most")
    cheats: list[CheatName] = Field(
        ["empty", "repeated", "echo", "leaked_answer", "all_answers", "longest"],
        description="canned completions that deserve nothing, tried on every row (leaked_answer: the bare answer)",
    )
    stored: str | None = Field(None, description="sha256 of completions that were given, as JSON lines")
    max_error_share: PositiveFloat = Field(
        0.01, description="the verdict is red when more of the calls gave no score"
    )
    success_score: float = Field(1.0, description="a completion counts as right with this score or more")

    def tries_all(self, *, rows_there: int) -> bool:
        """Whether a green verdict of it is proof: every cheat, on no fewer rows and with no wider bound than usual."""
        usual = BenchSection()
        return (
            set(usual.cheats) <= set(self.cheats)
            and self.rows >= min(usual.rows, rows_there)
            and self.max_error_share <= usual.max_error_share
        )
