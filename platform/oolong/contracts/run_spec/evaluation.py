"""Scoring of a held-out split while the run goes on."""

from __future__ import annotations

from pydantic import Field

from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section


class EvaluationSection(Section):
    """Scores a held-out split at a pinned version by leasing an engine; never in the gate or the ledger."""

    dataset: str | None = Field(None, description="dataset version; the training one when left out")
    split: str = Field("eval", description="rows of this split are scored")
    prompts: PositiveInt = Field(256, description="rows scored, from the first on")
    at_start: bool = Field(True, description="score the initial weights before training")
    at_end: bool = Field(True, description="score the last version after training")
    samples: NonNegativeInt = Field(1, description="sampled completions per prompt, besides the greedy one")
    temperature: PositiveFloat = Field(1.0, description="of the sampled completions")
