"""What a run may use of the pool."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from oolong.contracts.run_spec.section import PositiveInt, Section, refuse


class BudgetSection(Section):
    max_wall_seconds: PositiveInt | None = Field(
        None, description="the run is stopped, with a checkpoint, after this long"
    )
    max_attempts: PositiveInt = Field(3, description="attempts that may be lost to the user's own faults")


class PlacementSection(Section):
    pool: str = Field("default", description="pool whose slots are used; one that the team may use")
    device: Literal["cpu", "cuda"] | None = Field(
        None,
        description="what its slots must be; left out: cuda for trainer.dtype bfloat16, for a model of a billion "
        "parameters or more and with min_gpu_memory_gib or gpu_model, otherwise any",
    )
    min_gpu_memory_gib: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        None,
        description="memory that each of its slots must have at least, in GiB: of a GPU, or of its share of one",
    )
    gpu_model: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        None,
        description="part of the model name that the GPU of each of its slots must have, such as H100; case does not "
        "matter",
    )
    exclude_nodes: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=120)]], Field(max_length=50)
    ] = Field([], description="names or ids of nodes of the pool on which the run is never placed")
    nodes: Annotated[int, Field(ge=1, le=16)] = Field(
        1,
        description="over how many nodes at most the trainer's ranks may be spread where no node of the pool is large "
        "enough; only over nodes that reach each other (--peer-address). The ranks exchange tensors there without "
        "encryption, and rank 0 gathers each checkpoint in its host memory, 12 bytes per trained parameter",
    )
    priority: Annotated[int, Field(ge=0, le=1000)] = Field(500, description="higher goes first")

    @model_validator(mode="after")
    def _gpu_needs_a_gpu(self) -> Self:
        if self.min_gpu_memory_gib is not None and self.device == "cpu":
            raise refuse(
                "memory_of_no_gpu",
                f"min_gpu_memory_gib={self.min_gpu_memory_gib:g} with device='cpu': a CPU slot has no GPU; take "
                "device: cuda, or leave min_gpu_memory_gib out",
                "min_gpu_memory_gib",
            )
        if self.gpu_model is not None and self.device == "cpu":
            raise refuse(
                "model_of_no_gpu",
                f"gpu_model={self.gpu_model!r} with device='cpu': a CPU slot has no GPU; take device: cuda, or leave "
                "gpu_model out",
                "gpu_model",
            )
        return self
