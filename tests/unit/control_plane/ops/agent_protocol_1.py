"""Protocol 1 of the agents, as the version before this one had it. Frozen: what it reads is what old agents read.

Nothing here may follow a change of `oolong.contracts`; that is its use. The requests that such an agent sent are
recorded beside it, in agent-protocol-1.json. Both go when OLDEST_PROTOCOL leaves 1 behind.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("agent-protocol-1.json").read_text())

# The names that a RunSpec of then knows, by section; any other is refused.
SPEC = {
    "algorithm": (
        "advantage importance_weight clip_high clip_low critic dual_clip entropy_bonus kl "
        "loss_constant_tokens loss_function loss_aggregation mask_truncated objective options "
        "overlong proximal"
    ),
    "budget": "max_attempts max_wall_seconds",
    "checkpoint": "every_steps keep_last",
    "dataset": "split version",
    "evaluation": (
        "at_end at_start dataset every_steps greedy max_new_tokens allow_blocking prompts reward "
        "samples split success_score temperature"
    ),
    "kind": "",
    "model": "base_model checkpoint",
    "name": "",
    "notes": "",
    "placement": "pool priority",
    "reward": "bias function max_error_rate name options scale timeout_seconds",
    "rollout": (
        "engine_max_running_requests engine_max_total_tokens engine_memory_fraction engines filter "
        "frequency_penalty group_size group_timeout_seconds interruptible interruption logit_bias "
        "max_concurrent_groups max_new_tokens max_prompt_tokens min_p presence_penalty "
        "repetition_penalty temperature top_k top_p"
    ),
    "seed": "",
    "sft": (
        "adam_betas batch_size final_learning_rate_fraction learning_rate max_grad_norm "
        "required_greedy_accuracy seed_retries steps stop_at_greedy_accuracy validate_every_steps "
        "validate_from_step validation_rows validation_split warmup_steps weight_decay"
    ),
    "staleness": "max on_straggler",
    "trainer": (
        "activation_checkpointing adam_betas adam_epsilon compile dtype groups_per_step "
        "learning_rate max_grad_norm microbatch_tokens minibatches offload_optimizer num_ranks "
        "reshard_after_forward total_train_steps warmup_steps weight_decay"
    ),
    "weight_sync": "probe_every probe_first_versions probe_tolerance transport",
    "workflow": (
        "feedback function max_tool_calls max_trajectory_tokens max_turns name options retry_below "
        "session_export session_timeout_seconds tool_format tool_output_tokens tool_seconds "
        "turn_discount"
    ),
}


class EnrollReply(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    credential: str
    heartbeat_seconds: float = 10.0
    lease_ttl_seconds: float = 45.0
    orphan_ttl_seconds: float = 4500.0


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    bytes: int
    kind: str


class DesiredJob(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    name: str
    kind: Literal["controller", "reward", "rollout", "trainer"]
    index: int
    slots: list[str]
    restarts: int
    restart_window_seconds: float = 600.0
    stop: bool = False
    grace_seconds: float = 15.0


class RuntimeOverrides(msgspec.Struct, frozen=True, kw_only=True):
    revision: int = 0
    max_staleness: int | None = None
    max_concurrent_groups: int | None = None
    learning_rate: float | None = None
    checkpoint_requests: int = 0
    evaluation_requests: int = 0


class DesiredAttempt(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    attempt_id: str
    attempt_number: int
    epoch: int
    spec: dict[str, object]
    dataset: Artifact
    evaluation: Artifact | None
    model: Artifact | None
    model_path: str
    resume: Artifact | None
    sources: dict[str, Artifact] = {}
    ports: dict[str, int]
    token: str
    jobs: list[DesiredJob]
    live: RuntimeOverrides = RuntimeOverrides()
    tokens_generated_before: int = 0


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    attempts: list[DesiredAttempt]
    acknowledged: list[str]
    heartbeat_seconds: float = 10.0
    revision: int = 0


class OutboxReply(msgspec.Struct, frozen=True, kw_only=True):
    offset: int


class UploadReply(msgspec.Struct, frozen=True, kw_only=True):
    upload_id: str
    part_bytes: int
    received_parts: list[int]
    stored: bool = False
