"""What a run starts from: model, dataset, reward function and workflow."""

from __future__ import annotations

import typing
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.section import NonNegativeFloat, PositiveFloat, PositiveInt, Section, refuse

LoraTarget = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
LORA_TARGETS: tuple[LoraTarget, ...] = typing.get_args(LoraTarget)


class LoraSection(Section):
    """Train low-rank adapters (LoRA, arXiv 2106.09685) and keep the initial weights frozen."""

    rank: Annotated[int, Field(ge=1, le=1024)] = Field(16, description="rank of every adapter")
    alpha: PositiveFloat = Field(32.0, description="an adapter's output is multiplied by alpha / rank")
    targets: Annotated[list[LoraTarget], Field(min_length=1)] = Field(
        default=list(LORA_TARGETS), description="linear layers of each decoder layer that get an adapter"
    )

    @model_validator(mode="after")
    def _each_target_once(self) -> Self:
        doubled = [name for name in LORA_TARGETS if self.targets.count(name) > 1]
        if doubled:
            raise refuse("doubled", f"{', '.join(doubled)} is named twice; name each layer once", "targets")
        return self


class ModelSection(Section):
    """Where the initial weights come from, base_model or checkpoint, and which weights are trained."""

    base_model: str | None = Field(None, description="id or name of a registered base model")
    checkpoint: str | None = Field(None, description="a stored checkpoint: its id, an alias, or run@step")
    lora: LoraSection | None = Field(
        None, description="train adapters instead of all weights; kinds rl, sft and dpo"
    )

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.base_model is None) == (self.checkpoint is None):
            raise refuse("model_source", "name either base_model or checkpoint, not both and not neither")
        return self


class DatasetSection(Section):
    version: str = Field(description="dataset version: its id, or name@3, name@latest, or name@ and an alias")
    split: str = Field("train", description="rows of this split are used")
    weights: dict[str, NonNegativeFloat] = Field(
        default_factory=dict,
        description="of the sources of the split's rows, as the dataset's source column names them: 3 and 1 sample "
        "three prompts of the one for each of the other, 0 leaves a source out. Name all of them; without weights "
        "every row is sampled once per data epoch",
    )

    @model_validator(mode="after")
    def _something_is_sampled(self) -> Self:
        if self.weights and not any(self.weights.values()):
            raise refuse(
                "no_weight", "every source has the weight 0, so there is nothing to sample", "weights"
            )
        return self


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
    max_error_rate: PositiveFloat = Field(
        0.01,
        description="the run pauses (reward_error_rate) when more of the completions of five minutes got no score, "
        "for an error of the reward function or of the sandbox, and at 5 such errors in a row; 1: they are only "
        "counted",
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


# The options that a workflow reads besides those of all workflows. Of another one they would change nothing.
OPTIONS_OF: dict[str, tuple[str, ...]] = {
    "single_turn": (),
    "multi_turn": ("max_turns", "turn_discount", "feedback", "retry_below"),
    "python_tool": ("tool_format", "max_tool_calls", "tool_output_tokens", "tool_seconds"),
    "agent_session": ("session_timeout_seconds", "session_export"),
}


class WorkflowSection(Section):
    name: Literal["single_turn", "multi_turn", "python_tool", "agent_session"] = Field(
        "single_turn",
        description="the code that turns a prompt into a trajectory. multi_turn: after a wrong answer the policy gets "
        "feedback and answers again; python_tool: Python that the policy writes runs in the sandbox, and it continues "
        "with the output; agent_session: agents outside the run talk to it through an OpenAI-compatible endpoint, set "
        "rewards, and end their sessions",
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
    max_turns: PositiveInt = Field(3, description="multi_turn: answers at most")
    turn_discount: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="multi_turn: the last answer's score is multiplied by this once per retry"
    )
    feedback: Annotated[str, Field(min_length=1)] = Field(
        "Your answer is not correct. Look for the mistake and answer again.",
        description="multi_turn: what the user says after a wrong answer",
    )
    retry_below: PositiveFloat = Field(1.0, description="multi_turn: an answer of a lower score is wrong")

    tool_format: Literal["tool_call", "fenced"] = Field(
        "tool_call",
        description="python_tool: how the policy asks for it. tool_call: <tool_call> with JSON, of which the chat "
        "template tells the policy; fenced: a ```python block, of which the dataset's messages must tell it",
    )
    max_tool_calls: PositiveInt = Field(4, description="python_tool: programs at most in one rollout")
    tool_output_tokens: PositiveInt = Field(256, description="python_tool: what is kept of one output")
    tool_seconds: PositiveFloat = Field(
        5.0, description="python_tool and uploaded workflows: time of one program"
    )
    session_timeout_seconds: PositiveFloat = Field(
        600.0,
        description="agent_session: a session that its agent leaves alone for so long is dropped with its group, and "
        "so is a group whose last members find no agent",
    )
    session_export: Literal["concatenated", "individual"] = Field(
        "concatenated",
        description="agent_session: one trajectory per branch of a conversation, or one per call; each has the "
        "session's reward",
    )

    @model_validator(mode="after")
    def _options_are_of_this_workflow(self) -> Self:
        if self.function is not None and self.name != type(self).model_fields["name"].default:
            raise refuse(
                "two_workflows",
                f"name={self.name!r} is a built-in workflow and function={self.function!r} an uploaded one; "
                "leave one of them out",
                "function",
            )
        if self.options and self.function is None:
            raise refuse(
                "option_of_another_workflow",
                f"options={self.options!r} are of an uploaded workflow, and function names none; {self.name} has its "
                "options as fields of this section",
                "options",
            )
        taken = self.function or self.name
        known = OPTIONS_OF.get(taken, ("tool_seconds",))
        for workflow, options in OPTIONS_OF.items():
            for option in options:
                value = getattr(self, option)
                if option not in known and value != type(self).model_fields[option].default:
                    raise refuse(
                        "option_of_another_workflow",
                        f"{option}={value!r} is of workflow {workflow} and means nothing to {taken}; leave it "
                        f"out, or take name: {workflow}",
                        option,
                    )
        return self
