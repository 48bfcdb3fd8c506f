"""The trainer: steps, optimizer, weight sync, checkpoints and the supervised warm start."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.section import NonNegativeInt, PositiveFloat, PositiveInt, Section, refuse

ComputeType = Literal["float32", "bfloat16"]


class TrainerSection(Section):
    """The defaults are for models of 1 to 8 billion parameters (docs/decisions/0042)."""

    num_ranks: PositiveInt = Field(1, description="trainer processes, one slot each")
    total_train_steps: PositiveInt = Field(200, description="the run ends after this many")
    groups_per_step: PositiveInt = Field(32, description="groups in one batch (B)")
    minibatches: PositiveInt = Field(4, description="optimizer steps per train step")
    microbatch_tokens: PositiveInt = Field(16384, description="token budget of one forward pass of one rank")
    learning_rate: PositiveFloat = Field(1e-6, description="AdamW learning rate, constant after the warm-up")
    warmup_steps: NonNegativeInt = Field(0, description="train steps of linear warm-up")
    adam_betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW betas")
    adam_epsilon: PositiveFloat = Field(1e-8, description="AdamW epsilon")
    weight_decay: float = Field(0.0, description="AdamW weight decay")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    dtype: ComputeType | None = Field(
        None,
        description="type of computing and publishing; master weights and the reduction of gradients stay float32. "
        "none: bfloat16 on GPUs, float32 on CPUs",
    )
    activation_checkpointing: Literal["none", "selective", "full"] = Field(
        "full",
        description="what a backward pass computes again instead of keeping: nothing, all but matrix products and "
        "attention, or whole decoder layers",
    )
    offload_optimizer: bool = Field(False, description="AdamW's moments live in the host's memory")
    reshard_after_forward: bool = Field(
        True,
        description="free a layer's gathered weights after its forward pass; without, more memory, fewer gathers",
    )
    compile: bool = Field(False, description="torch.compile per decoder layer; CUDA and bfloat16 only")

    @model_validator(mode="after")
    def _compiled_blocks_need_the_kernel(self) -> Self:
        if self.compile and self.dtype == "float32":
            raise refuse(
                "compile_needs_bfloat16",
                f"compile=true with dtype={self.dtype!r}: without the variable-length kernel, which takes bfloat16, a "
                "layer would be compiled again for each batch; take dtype: bfloat16, or leave compile out",
                "compile",
            )
        return self

    @property
    def compute_type(self) -> ComputeType:
        """The type on a GPU; jobs on a CPU have got theirs from `on_device`."""
        return self.dtype or "bfloat16"

    def on_device(self, device: str) -> TrainerSection:
        """The section with the device's type, where it names none."""
        if self.dtype is not None:
            return self
        return self.model_copy(update={"dtype": "bfloat16" if device == "cuda" else "float32"})


class WeightSyncSection(Section):
    probe_first_versions: NonNegativeInt = Field(
        20, description="the probe is compared for this many first versions"
    )
    probe_every: PositiveInt = Field(10, description="then for every k-th version")
    probe_tolerance: PositiveFloat | None = Field(
        None,
        description="largest |logprob difference| between engine and trainer before the engine is STALE; left out: "
        "0.001 in float32, 0.5 in bfloat16",
    )

    def tolerance(self, dtype: Literal["float32", "bfloat16"]) -> float:
        """Nats. The same weights in bfloat16 differ by some 0.02 on the greedy tokens of a probe."""
        return self.probe_tolerance or {"float32": 1e-3, "bfloat16": 0.5}[dtype]


class CheckpointSection(Section):
    every_steps: PositiveInt = Field(
        20, description="a checkpoint is committed every so many train steps, and at the end"
    )
    keep_last: PositiveInt = Field(2, description="committed checkpoints kept on the node")


class SftSection(Section):
    """Supervised warm start on the `completion` column."""

    steps: PositiveInt = Field(1000, description="cap on optimizer steps")
    batch_size: PositiveInt = Field(32, description="demonstrations per optimizer step")
    learning_rate: PositiveFloat = Field(1e-5, description="peak AdamW learning rate")
    warmup_steps: NonNegativeInt = Field(20, description="steps of linear warm-up")
    final_learning_rate_fraction: float = Field(0.1, description="linear decay to this share of the peak")
    adam_betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW betas")
    weight_decay: float = Field(0.0, description="AdamW weight decay")
    max_grad_norm: PositiveFloat = Field(1.0, description="gradients are clipped to this norm")
    validation_split: str | None = Field(
        None, description="rows for the greedy accuracy; none turns validation and its stop rule off"
    )
    validation_rows: PositiveInt = Field(128, description="rows of that split used")
    validate_every_steps: PositiveInt = Field(200, description="steps between two validations")
    validate_from_step: NonNegativeInt = Field(200, description="first validation")
    stop_at_greedy_accuracy: float | None = Field(None, description="stop as soon as it is reached")
    required_greedy_accuracy: float | None = Field(
        None, description="below it at the cap, the seed is retried, then the run fails"
    )
    seed_retries: NonNegativeInt = Field(1, description="times the warm start is repeated with the next seed")
