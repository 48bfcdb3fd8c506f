"""How completions are sampled, and how stale they may become."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, refuse

# The settings under which an engine samples the very distribution whose log-probabilities it reports.
_FULL_DISTRIBUTION: dict[str, Any] = {
    "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
    "repetition_penalty": 1.0, "logit_bias": {},
}  # fmt: skip


class FilterSection(Section):
    """Groups that carry no signal are dropped as they finish, and others take their places."""

    kind: Literal["none", "zero_variance", "success_rate"] = Field(
        "none",
        description="zero_variance drops groups whose rewards are all equal; success_rate those whose share of "
        "successes is not between low and high",
    )
    low: float = Field(0.0, ge=0, le=1, description="success_rate keeps groups over this share")
    high: float = Field(1.0, ge=0, le=1, description="and under this one")
    success_score: float = Field(
        1.0, description="a completion succeeds when the reward function gives it this or more"
    )
    max_consecutive: PositiveInt = Field(
        512, description="so many filtered groups without one that is kept end the run with all_filtered"
    )

    @model_validator(mode="after")
    def _leaves_room(self) -> Self:
        if self.kind == "success_rate" and self.low >= self.high:
            raise refuse(
                "filter_bounds",
                f"low={self.low} is not below high={self.high}: no group has a success rate between them",
                "low",
            )
        return self


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
    max_new_tokens: PositiveInt = Field(
        4096, description="tokens of a completion at most; of each turn, where a rollout has several"
    )
    max_prompt_tokens: PositiveInt = Field(
        1024, description="a longer prompt ends the run with config_rejected, naming the row"
    )
    interruptible: bool = Field(
        True,
        description="running generations are interrupted by a weight update; without it the engine finishes them "
        "first, and no trajectory spans versions",
    )
    interruption: Literal["retract", "abort"] = Field(
        "retract",
        description="how: retract keeps a request in the engine, which prefills it again (SGLang 0.5.19 and newer); "
        "abort takes its tokens back and sends it again with them (any version). A run with model.lora always aborts, "
        "which pauses no engine",
    )
    repeatable_sampling: bool = Field(
        False,
        description="sample each completion from a seed of its own (the run's seed, group, rollout), by SGLang's "
        "deterministic inference; slower, and on GPUs only. The same weights then give the same completions, whatever "
        "else the engine does: with one engine and staleness.max 0 also in another run",
    )
    filter: FilterSection = FilterSection()
    group_timeout_seconds: PositiveFloat | None = Field(None, description="cap on the life of one claim")
    engine_max_running_requests: PositiveInt = Field(
        64, description="requests that an engine decodes at once"
    )
    engine_max_total_tokens: PositiveInt = Field(
        131072, description="size of an engine's KV cache, in tokens"
    )
    engine_memory_fraction: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of a GPU's memory for an engine's weights and KV cache; default is the engine's own, "
        "which leaves no room for a trainer on the same GPU",
    )

    @field_validator(*_FULL_DISTRIBUTION)
    @classmethod
    def _samples_the_full_distribution(cls, value: Any, info: ValidationInfo) -> Any:
        neutral = _FULL_DISTRIBUTION[str(info.field_name)]
        if value != neutral:
            raise refuse(
                "truncated_sampling",
                f"{info.field_name}={value!r} is refused for training rollouts: the engine reports "
                "log-probabilities of the full distribution, not of the truncated one that would be "
                f"sampled, so the importance weights would be wrong. Leave it at {neutral!r}",
            )
        return value


class StalenessSection(Section):
    max: NonNegativeInt = Field(4, description="max staleness (eta): 0 synchronous, 1 one-step overlap")
    on_straggler: Literal["keep", "drop", "wait"] | None = Field(
        None,
        description="what happens to groups older than the bound at take; default wait for max <= 1, else keep",
    )

    @property
    def straggler_policy(self) -> Literal["keep", "drop", "wait"]:
        return self.on_straggler or ("wait" if self.max <= 1 else "keep")
