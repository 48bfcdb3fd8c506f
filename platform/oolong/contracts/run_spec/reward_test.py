"""The test of a reward: what it scores, and what the report counts as a success."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section

ProbeName = Literal["empty", "repeated", "echo", "leaked_answer", "all_answers", "longest"]


class RewardTestSection(Section):
    """Of kind: reward_test. Submitted by POST /api/v1/reward-tests."""

    rows: PositiveInt = Field(32, description="dataset rows, from the first on")
    samples: NonNegativeInt = Field(
        0, description="completions sampled per row from the model, on a slot; 0 takes no slot"
    )
    temperature: PositiveFloat = Field(1.0, description="of those samples")
    max_new_tokens: PositiveInt = Field(4096, description="maximum length of a sample")
    probes: list[ProbeName] = Field(
        ["empty", "repeated", "echo", "leaked_answer", "all_answers", "longest"],
        description="reward-hacking probes: canned completions that deserve no reward, tried on every row "
        "(leaked_answer: the bare answer)",
    )
    stored: str | None = Field(None, description="sha256 of uploaded completions, as JSON lines")
    max_error_rate: PositiveFloat = Field(
        0.01, description="the result is red when a larger fraction of the calls gives no score"
    )
    success_score: float = Field(1.0, description="a completion counts as right with this score or more")

    def is_complete(self, *, available_rows: int) -> bool:
        """True when a green result is conclusive: every probe, on at least the default rows and error bound."""
        default = RewardTestSection()
        return (
            set(default.probes) <= set(self.probes)
            and self.rows >= min(default.rows, available_rows)
            and self.max_error_rate <= default.max_error_rate
        )
