"""Which slots a run can use."""

from __future__ import annotations

from typing import Literal

from oolong.contracts.run_spec.spec import RunSpec

LARGE_MODEL = 1_000_000_000  # parameters; from here on a CPU is no device for it


def device_needed(spec: RunSpec, parameters: int | None) -> Literal["cpu", "cuda"] | None:
    """What slots the run needs: as it says, or a GPU for 16-bit numbers and large models. None: any will do."""
    if spec.placement.device is not None:
        return spec.placement.device
    is_large = parameters is not None and parameters >= LARGE_MODEL
    names_gpu = spec.placement.min_gpu_memory_gib is not None or spec.placement.gpu_model is not None
    if spec.trainer.dtype == "bfloat16" or is_large or names_gpu:
        return "cuda"
    return None
