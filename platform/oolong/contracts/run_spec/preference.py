"""Training on preference pairs: which of two completions of a prompt is better."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from oolong.contracts.run_spec.section import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
)


class DpoSection(Section):
    """Direct preference optimization (arXiv 2305.18290) on the `chosen` and `rejected` columns."""

    steps: PositiveInt = Field(500, description="optimizer steps")
    batch_size: PositiveInt = Field(64, description="pairs per optimizer step")
    beta: PositiveFloat = Field(
        0.1,
        description="weight of a log-probability ratio to the reference model, the initial weights: a large one "
        "keeps the policy near them",
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        0.0,
        description="share of pairs that are expected to be labeled the wrong way round (conservative DPO)",
    )
    length_normalized: bool = Field(
        False,
        description="divide a completion's log-probability ratio by its tokens (arXiv 2411.15124), so that long "
        "completions do not weigh more; takes a beta of about 5",
    )
    learning_rate: PositiveFloat = Field(5e-7, description="peak AdamW learning rate")
    warmup_steps: NonNegativeInt = Field(20, description="steps of linear warm-up")
    final_learning_rate_fraction: NonNegativeFloat = Field(
        0.1, description="linear decay to this share of the peak"
    )
    adam_betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW betas")
    weight_decay: float = Field(0.0, description="AdamW weight decay")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    validation_split: str | None = Field(
        None, description="held-out pairs for loss and accuracy; none turns validation off"
    )
    validation_rows: PositiveInt = Field(256, description="pairs of that split used, from its first")
    validate_every_steps: PositiveInt = Field(
        50, description="steps between two validations; the last step is validated too"
    )
