"""The RunSpec: everything a run needs to know, as people write it in YAML, JSON or the form.

Unknown keys are errors; cross-field rules name the field, the value and the way out. The resolved spec
(every default filled in) is stored with the run and never changes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]


def _refuse(code: str, message: str, *path: str | int) -> PydanticCustomError:
    """A rule's refusal; `path` is where the reader should look (it becomes the JSON pointer)."""
    return PydanticCustomError(code, message, {"path": list(path)})


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSection(Section):
    """Where the initial weights come from: exactly one of the two."""

    base_model: str | None = Field(None, description="id or name of a registered base model")
    checkpoint: str | None = Field(None, description="id of a stored checkpoint")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.base_model is None) == (self.checkpoint is None):
            raise _refuse("model_source", "name either base_model or checkpoint, not both and not neither")
        return self


class DatasetSection(Section):
    version: str = Field(description="dataset version: its id, or name@3, or name@latest")
    split: str = Field("train", description="rows of this split are used")


class RewardSection(Section):
    name: str = Field("exact_match", description="a built-in reward function")
    options: dict[str, Any] = Field(default_factory=dict, description="options of that function")
    scale: float = Field(1.0, description="reward given to training = scale * score + bias")
    bias: float = Field(0.0, description="added to the scaled score")
    timeout_seconds: PositiveFloat = Field(
        15.0, description="one scoring call that takes longer is an error, never a reward of 0"
    )


class WorkflowSection(Section):
    name: Literal["single_turn"] = Field(
        "single_turn", description="the code that turns a prompt into a trajectory"
    )


# The settings under which an engine samples the very distribution whose log-probabilities it reports.
_FULL_DISTRIBUTION: dict[str, Any] = {
    "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "repetition_penalty": 1.0, "logit_bias": {},
}  # fmt: skip


class RolloutSection(Section):
    engines: PositiveInt = Field(1, description="number of engines (slots used for generation)")
    group_size: PositiveInt = Field(8, description="completions sampled per prompt (G)")
    max_concurrent_groups: PositiveInt = Field(64, description="groups in flight at once, over all engines")
    temperature: PositiveFloat = Field(
        1.0, description="sampling temperature; the trainer divides logits by the same"
    )
    top_p: float = Field(1.0, description="must stay 1 for training rollouts")
    top_k: int = Field(-1, description="must stay -1 (off) for training rollouts")
    min_p: float = Field(0.0, description="must stay 0 for training rollouts")
    frequency_penalty: float = Field(0.0, description="must stay 0 for training rollouts")
    presence_penalty: float = Field(0.0, description="must stay 0 for training rollouts")
    repetition_penalty: float = Field(1.0, description="must stay 1 for training rollouts")
    logit_bias: dict[str, float] = Field(
        default_factory=dict, description="must stay empty for training rollouts"
    )
    max_new_tokens: PositiveInt = Field(112, description="completion tokens at most")
    max_prompt_tokens: PositiveInt = Field(
        512, description="a longer prompt ends the run with config_refused, naming the row"
    )
    interruptible: bool = Field(True, description="running generations are interrupted by a weight update")
    group_wall_seconds: PositiveFloat | None = Field(None, description="cap on the life of one claim")
    engine_max_running_requests: PositiveInt = Field(
        64, description="requests that an engine decodes at once"
    )
    engine_max_total_tokens: PositiveInt = Field(32768, description="size of an engine's KV cache, in tokens")

    @field_validator(*_FULL_DISTRIBUTION)
    @classmethod
    def _samples_the_full_distribution(cls, value: Any, info: ValidationInfo) -> Any:
        neutral = _FULL_DISTRIBUTION[str(info.field_name)]
        if value != neutral:
            raise _refuse(
                "truncated_sampling",
                f"{info.field_name}={value!r} is refused for training rollouts: the engine reports "
                "log-probabilities of the full distribution, not of the truncated one that would be "
                f"sampled, so the importance weights would be wrong. Leave it at {neutral!r}",
            )
        return value


class StalenessSection(Section):
    max: NonNegativeInt = Field(4, description="max staleness (eta): 0 synchronous, 1 one-step overlap")
    on_straggler: Literal["keep", "drop", "wait"] | None = Field(
        None, description="fate of groups older than the bound at take; default wait for max <= 1, else keep"
    )

    @property
    def straggler_policy(self) -> Literal["keep", "drop", "wait"]:
        return self.on_straggler or ("wait" if self.max <= 1 else "keep")


class TrainerSection(Section):
    ranks: PositiveInt = Field(1, description="trainer processes, one slot each")
    total_train_steps: PositiveInt = Field(60, description="the run ends after this many")
    groups_per_step: PositiveInt = Field(32, description="groups in one batch (B)")
    minibatches: PositiveInt = Field(4, description="optimizer steps per train step")
    microbatch_tokens: PositiveInt = Field(4096, description="token budget of one forward pass of one rank")
    learning_rate: PositiveFloat = Field(2e-4, description="AdamW learning rate, constant after the warm-up")
    warmup_steps: NonNegativeInt = Field(0, description="train steps of linear warm-up")
    adam_betas: tuple[float, float] = Field((0.9, 0.99), description="AdamW betas")
    adam_epsilon: PositiveFloat = Field(1e-8, description="AdamW epsilon")
    weight_decay: float = Field(0.0, description="AdamW weight decay")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="compute type; master weights stay float32"
    )


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
            raise _refuse(
                "proximal_missing",
                "objective decoupled_ppo needs proximal: recompute (or take objective: ppo)",
                "proximal",
            )
        return self


class WeightSyncSection(Section):
    transport: Literal["disk"] = Field("disk", description="how weights reach the engines")
    probe_first_versions: NonNegativeInt = Field(
        20, description="the probe is compared for this many first versions"
    )
    probe_every: PositiveInt = Field(10, description="then for every k-th version")
    probe_tolerance: PositiveFloat = Field(
        1e-3, description="largest |logprob difference| between engine and trainer before the engine is STALE"
    )


class CheckpointSection(Section):
    every_steps: PositiveInt = Field(
        20, description="a checkpoint is committed every so many train steps, and at the end"
    )
    keep_last: PositiveInt = Field(2, description="committed checkpoints kept on the node")


class EvaluationSection(Section):
    """Scores a held-out split at a pinned version by leasing an engine; never in the gate or the ledger."""

    dataset: str | None = Field(None, description="dataset version; the training one when left out")
    split: str = Field("eval", description="rows of this split are scored")
    prompts: PositiveInt = Field(256, description="rows scored, from the first on")
    at_start: bool = Field(True, description="score the initial weights before training")
    at_end: bool = Field(True, description="score the last version after training")
    samples: NonNegativeInt = Field(1, description="sampled completions per prompt, besides the greedy one")
    temperature: PositiveFloat = Field(1.0, description="of the sampled completions")


class SftSection(Section):
    """Supervised warm start on the `completion` column."""

    steps: PositiveInt = Field(1250, description="cap on optimizer steps")
    batch_size: PositiveInt = Field(16, description="demonstrations per optimizer step")
    learning_rate: PositiveFloat = Field(5e-3, description="peak AdamW learning rate")
    warmup_steps: NonNegativeInt = Field(20, description="steps of linear warm-up")
    final_learning_rate_fraction: float = Field(0.1, description="linear decay to this share of the peak")
    adam_betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW betas")
    weight_decay: float = Field(0.0, description="AdamW weight decay")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    validation_split: str | None = Field(
        "validation", description="rows for the greedy accuracy; none turns the stop rule off"
    )
    validation_rows: PositiveInt = Field(128, description="rows of that split used")
    validate_every_steps: PositiveInt = Field(200, description="steps between two validations")
    validate_from_step: NonNegativeInt = Field(1000, description="first validation")
    stop_at_greedy_accuracy: float | None = Field(0.95, description="stop as soon as it is reached")
    required_greedy_accuracy: float | None = Field(
        0.85, description="below it at the cap, the seed is retried, then the run fails"
    )
    seed_retries: NonNegativeInt = Field(1, description="times the warm start is repeated with the next seed")


class BudgetSection(Section):
    max_wall_seconds: PositiveInt | None = Field(
        None, description="the run is stopped, with a checkpoint, after this long"
    )
    max_attempts: PositiveInt = Field(3, description="attempts that may be lost to the user's own faults")


class PlacementSection(Section):
    pool: str = Field("default", description="pool whose slots are used")
    priority: Annotated[int, Field(ge=0, le=1000)] = Field(500, description="higher goes first")


class RunSpec(Section):
    kind: Literal["rl", "sft"] = Field("rl", description="asynchronous RL, or a supervised warm start")
    name: Annotated[str, Field(min_length=1, max_length=120, description="shown in lists")]
    model: ModelSection
    dataset: DatasetSection
    workflow: WorkflowSection = WorkflowSection()
    reward: RewardSection = RewardSection()
    rollout: RolloutSection = RolloutSection()
    staleness: StalenessSection = StalenessSection()
    trainer: TrainerSection = TrainerSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    weight_sync: WeightSyncSection = WeightSyncSection()
    checkpoint: CheckpointSection = CheckpointSection()
    evaluation: EvaluationSection | None = None
    sft: SftSection = SftSection()
    budget: BudgetSection = BudgetSection()
    placement: PlacementSection = PlacementSection()
    seed: NonNegativeInt = Field(1, description="order of prompts, initial randomness")
    notes: str = Field("", description="free text")

    @model_validator(mode="after")
    def _batch_divides(self) -> Self:
        if self.trainer.groups_per_step % self.trainer.minibatches:
            raise _refuse(
                "batch_divides",
                f"groups_per_step={self.trainer.groups_per_step} is not divisible by "
                f"minibatches={self.trainer.minibatches}",
                "trainer", "minibatches",
            )  # fmt: skip
        advantage = self.algorithm.advantage
        if self.kind == "rl" and self.rollout.group_size == 1 and "group" in (advantage.mean, advantage.std):
            raise _refuse(
                "group_of_one",
                "group_size=1 gives every advantage the value 0 under group normalisation; take "
                "group_size >= 2 or advantage.mean: batch",
                "rollout", "group_size",
            )  # fmt: skip
        return self

    @property
    def slots_needed(self) -> int:
        """Slots of the minimal gang: trainer ranks, and for rl the engines."""
        return self.trainer.ranks + (self.rollout.engines if self.kind == "rl" else 0)


class SpecError(BaseModel):
    """One fault of a submitted spec, as the API and the CLI show it."""

    pointer: str  # JSON pointer to the field, "/rollout/top_p"
    code: str
    message: str


_LONGEST_VALUE_SHOWN = 60


def _said_with_value(kind: str, message: str, value: Any) -> str:
    """The message with the refused value, for the kinds of fault whose message lacks it."""
    if kind == "missing":
        return "required, and missing"
    if isinstance(value, (dict, list)) or repr(value) in message:
        return message
    shown = repr(value)
    if len(shown) > _LONGEST_VALUE_SHOWN:
        shown = f"{shown[:_LONGEST_VALUE_SHOWN]}…"
    return f"{message}; it is {shown}"


def spec_errors(document: Any) -> list[SpecError]:
    """All faults of a would-be RunSpec document; empty when it is valid."""
    from pydantic import ValidationError

    try:
        RunSpec.model_validate(document)
    except ValidationError as error:
        return [
            SpecError(
                pointer="".join(
                    f"/{part}" for part in (*fault["loc"], *fault.get("ctx", {}).get("path", ()))
                ),
                code="unknown_key" if fault["type"] == "extra_forbidden" else fault["type"],
                message=(
                    f"unknown key {fault['loc'][-1]!r}; the RunSpec reference lists this section's keys"
                    if fault["type"] == "extra_forbidden"
                    else _said_with_value(fault["type"], fault["msg"], fault["input"])
                ),
            )
            for fault in error.errors(include_url=False)
        ]
    return []
