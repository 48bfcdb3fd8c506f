"""The alert rules: when a run needs attention, and what to do about it.

A rule is a function in `alert_conditions` and one line in the table. It gets a window of the newest attempt and returns
a sentence with the values, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from control_plane.telemetry.alerts import alert_conditions as conditions
from control_plane.telemetry.alerts.alert_window import Window


@dataclass(frozen=True)
class AlertRule:
    name: str
    severity: Literal["info", "warning", "critical"]
    title: str
    advice: str
    condition: Callable[[Window], str | None]


RULES: tuple[AlertRule, ...] = (
    AlertRule("stalled", "critical", "No progress", "Check the gate's reason on the live page. If there is none, read the logs of the job that the others wait for.", conditions.stalled),
    AlertRule("engine_boot", "critical", "An engine fails to boot", "Read the end of its log in the message. Common causes: out of memory, a model that SGLang cannot load, a GPU in use by another process. The attempt ends after three failed boots in a row.", conditions.engine_boot),
    AlertRule("gate_closed", "critical", "No group can start", "The admission gate is closed and nothing is running that could open it. Raise staleness.max (oolong run set --set staleness.max=N), or pause and resume the run. Report it with the controller's log.", conditions.gate_closed),
    AlertRule("batch_unclaimed", "critical", "The trainer takes no batch", "Read the trainer's last log lines. With on_straggler: wait the trainer may wait for one very long group. The live page shows running groups, and rollout.group_timeout_seconds limits them.", conditions.batch_unclaimed),
    AlertRule("weights_unloaded", "critical", "No engine loads the weights", "No group starts on old weights. Check the rollout jobs' last log lines and the disk of the node. The events say why an engine is STALE.", conditions.weights_unloaded),
    AlertRule("boot_slow", "warning", "The boot is slow", "The boot checklist on the run's page shows the current stage. Read the last log lines of the jobs that it waits for.", conditions.boot_slow),
    AlertRule("nonfinite_steps", "critical", "Steps are not finite", "Lower trainer.learning_rate or trainer.max_grad_norm.", conditions.nonfinite),
    AlertRule("mismatch_drift", "critical", "Engine and trainer drift apart", "The behavior log-probabilities no longer match the weights. Look for STALE engines, or a changed kernel or precision.", conditions.mismatch_drift),
    AlertRule("mismatch_large", "critical", "Engine and trainer disagree", "The engine samples from a different policy than the trained one. Compare trainer.dtype with the engine's precision, and look for STALE engines.", conditions.mismatch_large),
    AlertRule("entropy_collapse", "warning", "Entropy collapses", "The policy stops exploring. Raise clip_high, add an entropy bonus, lower the learning rate, or use harder prompts.", conditions.entropy_collapse),
    AlertRule("entropy_jump", "warning", "Entropy jumps", "This often precedes a collapse of the reward. Lower the learning rate or max staleness, and start again from the checkpoint before the jump.", conditions.entropy_jump),
    AlertRule("importance_ratio_bias", "warning", "Importance weights are off", "w should average 1. Lower max staleness or the learning rate.", conditions.importance_ratio_bias),
    AlertRule("importance_ratio_variance", "warning", "Importance weights spread", "A few tokens dominate the step. Lower max staleness or the learning rate, or mask more tokens (algorithm.importance_weight).", conditions.importance_ratio_variance),
    AlertRule("low_effective_sample_size", "warning", "Effective sample size is low", "Most tokens are too far from the policy that sampled them. Lower max staleness or the learning rate.", conditions.low_effective_sample_size),
    AlertRule("clipping", "warning", "Many tokens are clipped", "Steps are too large for the clip range. Lower the learning rate; more minibatches make it worse.", conditions.clipping),
    AlertRule("gradient_spike", "warning", "Gradient norm spikes", "One batch dominates. Check its trajectories, and lower trainer.max_grad_norm if it happens again.", conditions.gradient_spike),
    AlertRule("zero_advantage_groups", "warning", "Groups have no learning signal", "Prompts are too easy or too hard. Filter groups without variance (rollout.filter), change the prompts, or raise the group size.", conditions.zero_advantage_groups),
    AlertRule("reward_constant", "warning", "Rewards are constant", "Check trajectories. If the prompts are solved, use harder ones. If the reward can be hacked, test it (oolong reward test).", conditions.reward_constant),
    AlertRule("reward_flat", "info", "Reward is flat", "Check a few trajectories by hand, then the learning rate, the fraction of groups without variance, and the reward itself.", conditions.reward_flat),
    AlertRule("truncated", "warning", "Completions hit the length limit", "Raise rollout.max_new_tokens, or penalize long completions before they are truncated (algorithm.overlong).", conditions.truncated),
    AlertRule("staleness_exceeded", "warning", "Max staleness is exceeded", "on_straggler: keep allows this. wait and drop enforce the bound, at a cost that the live page shows.", conditions.staleness_exceeded),
    AlertRule("trainer_idle", "info", "The trainer waits", "Give the run more engines or fewer trainer ranks. A higher max staleness hides uneven lengths.", conditions.trainer_idle),
    AlertRule("rollout_idle", "info", "The engines wait", "The gate is closed most of the time. Give the trainer more ranks or the run fewer engines, or raise max staleness.", conditions.rollout_idle),
    AlertRule("buffer_full", "info", "The trainer is behind", "Finished groups age while they wait. Give the trainer more ranks or the run fewer engines, or lower max staleness.", conditions.buffer_full),
    AlertRule("slow_weight_sync", "warning", "Weight sync is slow", "Check the weight sync timings. A slow disk is the usual cause.", conditions.slow_weight_sync),
    AlertRule("engine_restarts", "warning", "Engines keep restarting", "Read the rollout jobs' last log lines. Out of memory is the usual cause (rollout.engine_max_total_tokens).", conditions.engine_restarts),
    AlertRule("memory_growth", "warning", "The trainer's memory grows", "The trainer is killed when the node runs out of memory. Save checkpoints more often (checkpoint.every_steps), lower trainer.microbatch_tokens, and report it if it continues.", conditions.memory_growth),
    AlertRule("reward_errors", "warning", "The reward fails", "Read the reward service's log. Groups that cannot be scored are dropped, never scored 0.", conditions.reward_errors),
    AlertRule("rollout_errors", "warning", "Rollouts fail", "Read the last log lines of the rollout jobs and the reward service. Failed groups are dropped and counted, never scored 0.", conditions.rollout_errors),
)  # fmt: skip

STEP_METRICS = (
    "policy/entropy", "importance_ratio/mean", "mismatch/logprob_abs_mean", "policy/clip_low_frac", "policy/clip_high_frac",
    "optim/grad_norm", "optim/skipped_steps", "group/zero_variance_frac", "group/all_correct_frac", "reward/mean",
    "response_length/truncated_frac", "idle/trainer_frac", "staleness/exceeded_frac", "time/publish_seconds",
    "time/step_seconds", "importance_ratio/std", "importance_ratio/effective_sample_frac", "reward/std", "memory/trainer_peak_bytes",
)  # fmt: skip
START_METRICS = ("policy/entropy", "mismatch/logprob_abs_mean", "reward/std")
TIME_METRICS = (
    "idle/rollout_frac", "engine/restarts", "reward/scored", "reward/verifier_errors", "buffer/groups",
    "ledger/failed_groups", "ledger/trained_groups", "gate/stalled_seconds", "buffer/batch_unclaimed_seconds",
    "weight_sync/unloaded_seconds",
)  # fmt: skip


def evaluate(window: Window) -> dict[str, str]:
    """The name and message of each rule that fires."""
    return {rule.name: message for rule in RULES if (message := rule.condition(window)) is not None}


def rule_of(name: str) -> AlertRule:
    """An alert may outlive its rule: its name then stands for the title."""
    return _RULES.get(name) or AlertRule(name, "info", name, "", lambda window: None)


_RULES = {rule.name: rule for rule in RULES}
