"""Specs for the models of the tests, of some hundred thousand parameters on a CPU.

The defaults of a RunSpec are those of a model of 1 to 8 billion parameters on GPUs. What a test leaves out of its spec
comes from here instead.
"""

from __future__ import annotations

from typing import Any

from oolong.contracts.run_spec import RunSpec

TRAINER: dict[str, Any] = {
    "total_train_steps": 60, "groups_per_step": 32, "minibatches": 4, "microbatch_tokens": 4096,
    "learning_rate": 2e-4, "adam_betas": [0.9, 0.99], "dtype": "float32", "activation_checkpointing": "none",
}  # fmt: skip
ROLLOUT: dict[str, Any] = {
    "max_concurrent_groups": 64, "max_new_tokens": 112, "max_prompt_tokens": 512, "engine_max_total_tokens": 32768,
}  # fmt: skip
SFT: dict[str, Any] = {
    "steps": 1250, "batch_size": 16, "learning_rate": 5e-3, "validation_split": "validation",
    "validate_from_step": 1000, "stop_at_greedy_accuracy": 0.95, "required_greedy_accuracy": 0.85,
}  # fmt: skip
DPO: dict[str, Any] = {"steps": 60, "batch_size": 16, "learning_rate": 2e-4}


def tiny_run_spec(document: dict[str, Any]) -> RunSpec:
    return RunSpec.model_validate(tiny_spec(document))


def tiny_spec(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with the sizes of a tiny model where it says nothing."""
    sections = {"trainer": TRAINER, "rollout": ROLLOUT}
    if document.get("kind") == "sft":
        sections["sft"] = SFT
    if document.get("kind") == "dpo":
        sections["dpo"] = DPO
    whole = dict(document)
    for name, sizes in sections.items():
        given = document.get(name, {})
        if isinstance(given, dict):  # else it is wrong on purpose
            whole[name] = {**sizes, **given}
    return whole
