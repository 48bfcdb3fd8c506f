"""The RunSpec: everything a run needs to know, as people write it in YAML, JSON or the form.

Unknown keys are errors; cross-field rules name the field, the value and the way out. The resolved spec
(every default filled in) is stored with the run and never changes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
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
    bias: float = 0.0
    timeout_seconds: PositiveFloat = 15.0


class WorkflowSection(Section):
    name: Literal["single_turn"] = "single_turn"


class RolloutSection(Section):
    engines: PositiveInt = Field(1, description="number of engines (slots used for generation)")
    group_size: PositiveInt = Field(8, description="completions sampled per prompt (G)")
    max_concurrent_groups: PositiveInt = Field(64, description="groups in flight at once, over all engines")
    temperature: PositiveFloat = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: dict[str, float] = Field(default_factory=dict)
    max_new_tokens: PositiveInt = 112
    max_prompt_tokens: PositiveInt = 512
    interruptible: bool = Field(True, description="running generations are interrupted by a weight update")
    group_wall_seconds: PositiveFloat | None = Field(None, description="cap on the life of one claim")
    engine_max_running_requests: PositiveInt = 64
    engine_max_total_tokens: PositiveInt = 32768

    @model_validator(mode="after")
    def _samples_the_full_distribution(self) -> Self:
        neutral: dict[str, Any] = {
            "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
            "repetition_penalty": 1.0, "logit_bias": {},
        }  # fmt: skip
        for name, value in neutral.items():
            if getattr(self, name) != value:
                raise _refuse(
                    "truncated_sampling",
                    f"{name}={getattr(self, name)!r} is refused for training rollouts: the engine reports "
                    "log-probabilities of the full distribution, not of the truncated one that would be "
                    f"sampled, so the importance weights would be wrong. Leave it at {value!r}",
                    name,
                )
        return self


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
    total_train_steps: PositiveInt = 60
    groups_per_step: PositiveInt = Field(32, description="groups in one batch (B)")
    minibatches: PositiveInt = Field(4, description="optimizer steps per train step")
    microbatch_tokens: PositiveInt = Field(4096, description="token budget of one forward pass of one rank")
    learning_rate: PositiveFloat = 2e-4
    warmup_steps: NonNegativeInt = 0
    adam_betas: tuple[float, float] = (0.9, 0.99)
    adam_epsilon: PositiveFloat = 1e-8
    weight_decay: float = 0.0
    max_grad_norm: PositiveFloat = 1.0
    dtype: Literal["float32", "bfloat16"] = "float32"


class BehaviourWeightSection(Section):
    """w = proximal / behaviour probability of a token."""

    mode: Literal["mask", "cap", "none"] = "mask"
    limit: PositiveFloat = 5.0


class AdvantageSection(Section):
    mean: Literal["batch", "group", "none"] = "group"
    std: Literal["batch", "group", "none"] = "group"
    epsilon: PositiveFloat = 1e-4


class AlgorithmSection(Section):
    objective: Literal["decoupled_ppo", "ppo"] = "decoupled_ppo"
    proximal: Literal["recompute", "none"] = "recompute"
    clip_low: PositiveFloat = 0.2
    clip_high: PositiveFloat = 0.2
    behaviour_weight: BehaviourWeightSection = BehaviourWeightSection()
    advantage: AdvantageSection = AdvantageSection()
    loss_normalisation: Literal["tokens"] = "tokens"

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
    transport: Literal["disk"] = "disk"
    probe_first_versions: NonNegativeInt = Field(
        20, description="the probe is compared for this many first versions"
    )
    probe_every: PositiveInt = Field(10, description="then for every k-th version")
    probe_tolerance: PositiveFloat = Field(
        1e-3, description="largest |logprob difference| between engine and trainer before the engine is STALE"
    )


class CheckpointSection(Section):
    every_steps: PositiveInt = 20
    keep_last: PositiveInt = 2


class EvaluationSection(Section):
    """Scores a held-out split at a pinned version by leasing an engine; never in the gate or the ledger."""

    dataset: str | None = Field(None, description="dataset version; the training one when left out")
    split: str = "eval"
    prompts: PositiveInt = 256
    at_start: bool = True
    at_end: bool = True
    samples: NonNegativeInt = Field(1, description="sampled completions per prompt, besides the greedy one")
    temperature: PositiveFloat = 1.0


class SftSection(Section):
    """Supervised warm start on the `completion` column."""

    steps: PositiveInt = Field(1250, description="cap on optimizer steps")
    batch_size: PositiveInt = 16
    learning_rate: PositiveFloat = 5e-3
    warmup_steps: NonNegativeInt = 20
    final_learning_rate_fraction: float = 0.1
    adam_betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: PositiveFloat = 1.0
    validation_split: str | None = "validation"
    validation_rows: PositiveInt = 128
    validate_every_steps: PositiveInt = 200
    validate_from_step: NonNegativeInt = 1000
    stop_at_greedy_accuracy: float | None = Field(0.95, description="stop as soon as it is reached")
    required_greedy_accuracy: float | None = Field(
        0.85, description="below it at the cap, the seed is retried, then the run fails"
    )
    seed_retries: NonNegativeInt = 1


class BudgetSection(Section):
    max_wall_seconds: PositiveInt | None = None
    max_attempts: PositiveInt = Field(3, description="attempts that may be lost to the user's own faults")


class PlacementSection(Section):
    pool: str = "default"
    priority: Annotated[int, Field(ge=0, le=1000)] = Field(500, description="higher goes first")


class RunSpec(Section):
    kind: Literal["rl", "sft"] = "rl"
    name: Annotated[str, Field(min_length=1, max_length=120)]
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
    seed: NonNegativeInt = 1
    notes: str = ""

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
                    else fault["msg"]
                ),
            )
            for fault in error.errors(include_url=False)
        ]
    return []
