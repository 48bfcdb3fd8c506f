"""Objective and advantages."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.section import PositiveFloat, Section, refuse


class BehaviourWeightSection(Section):
    """w = proximal / behaviour probability of a token."""

    mode: Literal["mask", "cap", "none"] = Field(
        "mask", description="tokens with w over the limit: left out, capped at it, or kept"
    )
    limit: PositiveFloat = Field(5.0, description="largest w that is used as it is")


class AdvantageSection(Section):
    mean: Literal["batch", "group", "none"] = Field("group", description="what is subtracted from a reward")
    std: Literal["batch", "group", "none"] = Field("group", description="what it is divided by")
    epsilon: PositiveFloat = Field(1e-4, description="added to the standard deviation")


class AlgorithmSection(Section):
    objective: Literal["decoupled_ppo", "ppo"] = Field(
        "decoupled_ppo", description="eq. 5 of arXiv 2505.24298, or plain PPO for comparison"
    )
    loss_function: str | None = Field(
        None,
        description="an uploaded loss, name@3 or name@latest, instead of the objective's own; "
        "only in projects with trainer_code",
    )
    proximal: Literal["recompute", "none"] = Field(
        "recompute", description="proximal logprobs: recomputed before each train step, or none"
    )
    clip_low: PositiveFloat = Field(0.2, description="the ratio is clipped at 1 - clip_low")
    clip_high: PositiveFloat = Field(0.2, description="and at 1 + clip_high")
    behaviour_weight: BehaviourWeightSection = BehaviourWeightSection()
    advantage: AdvantageSection = AdvantageSection()
    loss_normalisation: Literal["tokens"] = Field(
        "tokens", description="divided by the loss tokens of the minibatch, over all ranks"
    )

    @model_validator(mode="after")
    def _decoupled_needs_a_proximal_policy(self) -> Self:
        if self.objective == "decoupled_ppo" and self.proximal == "none":
            raise refuse(
                "proximal_missing",
                "objective decoupled_ppo needs proximal: recompute (or take objective: ppo)",
                "proximal",
            )
        return self
