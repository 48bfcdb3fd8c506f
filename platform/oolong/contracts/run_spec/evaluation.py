"""Scoring of a held-out split while the run continues."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.inputs import RewardSection
from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, refuse


class EvaluationSection(Section):
    """Scores a held-out split at a pinned version, on an idle slot or a leased engine; never in gate or ledger."""

    dataset: str | None = Field(None, description="dataset version; the training one when left out")
    split: str = Field("eval", description="rows of this split are scored")
    prompts: PositiveInt = Field(256, description="rows scored, from the first on")
    at_start: bool = Field(True, description="score the initial weights before training")
    every_steps: PositiveInt | None = Field(
        None, description="score every so many train steps as well, while the run continues"
    )
    allow_blocking: bool = Field(
        False,
        description="consent to every_steps with rollout.engines: 1, where generation stands still while it lasts "
        "unless a slot of the node is idle for it",
    )
    at_end: bool = Field(True, description="score the last version after training")
    greedy: bool = Field(True, description="score one greedy completion per prompt")
    samples: NonNegativeInt = Field(1, description="sampled completions per prompt (k of avg@k and pass@k)")
    temperature: PositiveFloat = Field(1.0, description="of the sampled completions")
    max_new_tokens: PositiveInt | None = Field(
        None, description="completion tokens at most; rollout.max_new_tokens when left out"
    )
    success_score: float = Field(
        1.0, description="a completion counts as right for pass@k with this score or more"
    )
    reward: RewardSection | None = Field(
        None,
        description="scores these completions in place of the training reward; scale and bias are not used",
    )

    @model_validator(mode="after")
    def _scores_something(self) -> Self:
        if not self.greedy and self.samples == 0:
            raise refuse(
                "nothing_scored", "greedy=false and samples=0 score nothing; take samples >= 1", "samples"
            )
        return self
