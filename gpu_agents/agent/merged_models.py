"""What a model with adapters is made of on a node, and the key under which the cache keeps it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from gpu_agents.agent.artifacts import ArtifactError
from oolong.contracts.agent import DesiredAttempt
from oolong.contracts.lora_adapter import ADAPTER_CONFIG_FILE


def merged_key(attempt: DesiredAttempt) -> str:
    """The cache key of the attempt's model: a hash of its base and its adapters."""
    base = (
        attempt.model.sha256 if attempt.model is not None else repr((attempt.model_path, attempt.model_files))
    )
    parts = ["merged", base, *(artifact.sha256 for artifact in attempt.adapters)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def adapter_directory(content: Path) -> Path:
    """The PEFT directory inside an unpacked checkpoint."""
    if (content / "adapter" / ADAPTER_CONFIG_FILE).is_file():
        return content / "adapter"
    raise ArtifactError(
        f"the checkpoint has no adapter/{ADAPTER_CONFIG_FILE}, so there is no adapter to merge"
    )
