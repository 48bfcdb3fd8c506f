"""The alert rules: when a run needs attention, and what to do about it.

A rule is a function in `alert_conditions` and one line in the table. It sees a window of the newest attempt and answers
with one sentence that has the numbers in it, or None.
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
    AlertRule("stalled", "critical", "No progress", "Look at the gate's reason on the live page: with none, at the logs of the job that others wait for.", conditions.stalled),
    AlertRule("engine_boot", "critical", "An engine does not boot", "Read the end of its log in the message: out of memory, a model that SGLang cannot load and a GPU that is taken are the usual causes. After three boots that fail in a row the attempt ends.", conditions.engine_boot),
    AlertRule("gate_closed", "critical", "Nothing can start", "The admission gate is closed and nothing runs that could open it: raise staleness.max live (oolong run set --set staleness.max=N), or pause and resume the run; report it with the controller's log.", conditions.gate_closed),
    AlertRule("batch_unclaimed", "critical", "The trainer takes no batch", "Read the trainer's last log lines. With on_straggler: wait it may wait for one very long group: the live page shows running groups, and rollout.group_timeout_seconds bounds them.", conditions.batch_unclaimed),
    AlertRule("weights_unloaded", "critical", "No engine loads the weights", "No group starts on old weights. Look at the rollout jobs' last log lines and at the disk of the node; an engine that is STALE says why among the events.", conditions.weights_unloaded),
    AlertRule("boot_slow", "warning", "The boot takes long", "The boot checklist on the run's page says which stage it is at; read the last log lines of the jobs that it waits for.", conditions.boot_slow),
    AlertRule("nonfinite_steps", "critical", "Steps are not finite", "Lower trainer.learning_rate, or clip more (trainer.max_grad_norm).", conditions.nonfinite),
    AlertRule("mismatch_drift", "critical", "Engine and trainer drift apart", "Behaviour log-probabilities are no longer those of the weights: look for engines that are STALE, a kernel or precision that changed.", conditions.mismatch_drift),
    AlertRule("mismatch_large", "critical", "Engine and trainer disagree", "The engine samples from another policy than the one that is trained: compare trainer.dtype with the engine's precision, and look for engines that are STALE.", conditions.mismatch_large),
    AlertRule("entropy_collapse", "warning", "Entropy collapses", "The policy stops exploring: raise clip_high, add an entropy bonus, lower the learning rate, or take harder prompts.", conditions.entropy_collapse),
    AlertRule("entropy_jump", "warning", "Entropy jumps", "Often the step before a collapse of the reward: lower the learning rate or max staleness; go back to the checkpoint before it.", conditions.entropy_jump),
    AlertRule("importance_ratio_bias", "warning", "Importance weights are off", "w should average 1: lower max staleness, or the learning rate.", conditions.importance_ratio_bias),
    AlertRule("importance_ratio_variance", "warning", "Importance weights spread", "A few tokens carry the step: lower max staleness or the learning rate, or mask more of them (algorithm.importance_weight).", conditions.importance_ratio_variance),
    AlertRule("low_effective_sample_size", "warning", "Little of the batch counts", "Most tokens are too far from the policy that sampled them: lower max staleness, or the learning rate.", conditions.low_effective_sample_size),
    AlertRule("clipping", "warning", "Much is clipped", "Steps are too large for the clip range: more minibatches make it worse; lower the learning rate.", conditions.clipping),
    AlertRule("gradient_spike", "warning", "Gradient norm spikes", "One batch pulls hard: look at its trajectories; lower trainer.max_grad_norm if it repeats.", conditions.gradient_spike),
    AlertRule("zero_advantage_groups", "warning", "Groups teach nothing", "Prompts are too easy or too hard: filter groups without variance (rollout.filter), change the prompts, or raise the group size.", conditions.zero_advantage_groups),
    AlertRule("reward_constant", "warning", "Rewards become one value", "Look at trajectories: a solved set wants harder prompts, a reward that pays for one trick wants a test (oolong reward test).", conditions.reward_constant),
    AlertRule("reward_flat", "info", "Reward is flat", "Check a few trajectories by hand; then the learning rate, the share of groups without variance, and the reward itself.", conditions.reward_flat),
    AlertRule("truncated", "warning", "Completions hit the length limit", "Raise rollout.max_new_tokens, or penalise length before it is cut (algorithm.overlong).", conditions.truncated),
    AlertRule("staleness_exceeded", "warning", "Data is staler than the bound", "With on_straggler: keep this is a choice; wait or drop obeys the bound, at a cost that the live page shows.", conditions.staleness_exceeded),
    AlertRule("trainer_idle", "info", "The trainer waits", "Give the run more engines, or fewer trainer ranks; a longer max staleness hides uneven lengths.", conditions.trainer_idle),
    AlertRule("rollout_idle", "info", "The engines wait", "The gate is closed most of the time: give the trainer more ranks, the run fewer engines, or raise max staleness.", conditions.rollout_idle),
    AlertRule("buffer_full", "info", "The trainer is behind", "Finished groups age while they wait: give the trainer more ranks or the run fewer engines, or lower max staleness.", conditions.buffer_full),
    AlertRule("slow_weight_sync", "warning", "Weight sync is slow", "Look at sync timings: a slow disk is the usual cause.", conditions.slow_weight_sync),
    AlertRule("engine_restarts", "warning", "Engines keep restarting", "Read the rollout jobs' last log lines: out of memory is the usual cause (rollout.engine_max_total_tokens).", conditions.engine_restarts),
    AlertRule("memory_growth", "warning", "The trainer's memory grows", "It will be killed when the node has no more: checkpoint more often (checkpoint.every_steps), lower trainer.microbatch_tokens, and report it if it goes on.", conditions.memory_growth),
    AlertRule("reward_errors", "warning", "The reward fails", "Read the reward service's log; groups that cannot be scored are dropped, never scored 0.", conditions.reward_errors),
    AlertRule("rollout_errors", "warning", "Rollouts fail", "Read the rollout jobs' and the reward service's last lines; failed groups are dropped and counted, never scored 0.", conditions.rollout_errors),
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
    """Name of each rule that speaks up, with its sentence."""
    return {rule.name: said for rule in RULES if (said := rule.condition(window)) is not None}


def rule_of(name: str) -> AlertRule:
    """An alert may outlive its rule: its name then stands for the title."""
    return _RULES.get(name) or AlertRule(name, "info", name, "", lambda window: None)


_RULES = {rule.name: rule for rule in RULES}
