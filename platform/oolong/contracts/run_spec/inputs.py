"""What a run starts from: model, dataset, reward function and workflow."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.section import PositiveFloat, PositiveInt, Section, refuse


class ModelSection(Section):
    """Where the initial weights come from: exactly one of the two."""

    base_model: str | None = Field(None, description="id or name of a registered base model")
    checkpoint: str | None = Field(None, description="id of a stored checkpoint")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.base_model is None) == (self.checkpoint is None):
            raise refuse("model_source", "name either base_model or checkpoint, not both and not neither")
        return self


class DatasetSection(Section):
    version: str = Field(description="dataset version: its id, or name@3, or name@latest")
    split: str = Field("train", description="rows of this split are used")


class RewardSection(Section):
    name: str = Field("exact_match", description="a built-in reward function")
    function: str | None = Field(
        None, description="an uploaded reward function, name@3 or name@latest, instead of a built-in one"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="options of that function")
    scale: float = Field(1.0, description="reward given to training = scale * score + bias")
    bias: float = Field(0.0, description="added to the scaled score")
    timeout_seconds: PositiveFloat = Field(
        15.0, description="one scoring call that takes longer is an error, never a reward of 0"
    )

    @model_validator(mode="after")
    def _one_function(self) -> Self:
        default = type(self).model_fields["name"].default
        if self.function is not None and self.name != default:
            raise refuse(
                "two_rewards",
                f"name={self.name!r} is a built-in reward and function={self.function!r} an uploaded one; "
                "leave one of them out",
                "function",
            )
        return self


class WorkflowSection(Section):
    name: Literal["single_turn"] = Field(
        "single_turn", description="the code that turns a prompt into a trajectory"
    )
    max_trajectory_tokens: PositiveInt | None = Field(
        None,
        description="tokens of a trajectory at most, over all its turns and with what the environment says; default "
        "what the model's context holds. rollout.max_new_tokens bounds each turn of the policy",
    )
    function: str | None = Field(
        None, description="an uploaded workflow, name@3 or name@latest, instead of a built-in one"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="options of an uploaded workflow")
