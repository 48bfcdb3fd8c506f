"""When a run looks ill, and what to do about it: pure functions over its newest points.

A rule is a function and one line in the table. It sees a window of the newest attempt and answers with one sentence
that has the numbers in it, or None. What was not measured is no reason for an alert. Thresholds are named where they
were taken from somewhere; the others are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Literal

STEPS = 60  # of the newest train steps in a window
START_STEPS = 20  # of the attempt's first train steps, to compare with
TIME_POINTS = 720  # an hour, at a point every five seconds
STALL_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Window:
    """The newest points of one attempt, oldest first."""

    steps: Mapping[str, Sequence[float]] = field(default_factory=dict)  # metric -> its last STEPS values
    start: Mapping[str, Sequence[float]] = field(
        default_factory=dict
    )  # metric -> its first START_STEPS values
    times: Mapping[str, Sequence[Sequence[float]]] = field(
        default_factory=dict
    )  # metric -> per source, last hour
    seconds_since_step: float | None = None  # None before the first train step
    bound_holds: bool = False  # on_straggler is wait or drop

    def last(self, name: str, count: int) -> Sequence[float] | None:
        """The last `count` values by step; None when there are not so many."""
        values = self.steps.get(name, ())
        return values[-count:] if len(values) >= count else None


@dataclass(frozen=True)
class AlertRule:
    name: str
    severity: Literal["info", "warning", "critical"]
    title: str
    advice: str
    judge: Callable[[Window], str | None]


def _entropy_collapse(window: Window) -> str | None:
    start, now = window.start.get("policy/entropy", ()), window.last("policy/entropy", 5)
    if len(start) < START_STEPS or now is None or len(window.steps["policy/entropy"]) <= START_STEPS:
        return None
    before, after = fmean(start), fmean(now)
    return f"entropy is {after:.3g} nats, {after / before:.0%} of its start" if after < 0.3 * before else None


def _entropy_jump(window: Window) -> str | None:
    values = window.last("policy/entropy", 25)
    if values is None:
        return None
    before, after = fmean(values[:20]), fmean(values[20:])
    return (
        f"entropy went from {before:.3g} to {after:.3g} nats within 5 steps"
        if after > 2 * before > 0
        else None
    )


def _weight_off(window: Window) -> str | None:
    values = window.last("weight/mean", 5)
    mean = None if values is None else fmean(values)
    return f"mean w is {mean:.3g} over 5 steps" if mean is not None and not 0.5 <= mean <= 2.0 else None


def _mismatch_drift(window: Window) -> str | None:
    start, now = (
        window.start.get("mismatch/logprob_abs_mean", ())[:10],
        window.last("mismatch/logprob_abs_mean", 1),
    )
    if len(start) < 10 or now is None:
        return None
    before, after = fmean(start), now[0]
    # Rounding in float32 is 1e-7 and in bfloat16 a few 1e-3: below that a ratio says nothing.
    times = f"{after / before:.1f} times the start" if before else "and by none at the start"
    return (
        f"engine and trainer differ by {after:.2g} nats a token, {times}"
        if after > 3 * before and after > 5e-3
        else None
    )


def _clipping(window: Window) -> str | None:
    low, high = window.last("policy/clip_low_share", 10), window.last("policy/clip_high_share", 10)
    share = None if low is None or high is None else fmean(low) + fmean(high)
    return (
        f"{share:.0%} of the loss tokens were clipped over 10 steps"
        if share is not None and share > 0.3
        else None
    )


def _gradient_spike(window: Window) -> str | None:
    values = window.last("optim/grad_norm", 21)
    if values is None:
        return None
    usual = median(values[:-1])
    return (
        f"the gradient norm is {values[-1]:.3g}, usually {usual:.3g}" if values[-1] > 5 * usual > 0 else None
    )


def _nonfinite(window: Window) -> str | None:
    values = window.last("optim/nonfinite_skips", 1)
    return (
        f"{values[0]:.0f} train steps were skipped: not finite"
        if values is not None and values[0] > 0
        else None
    )


def _no_signal(window: Window) -> str | None:
    values = window.last("group/zero_variance_share", 10)
    share = None if values is None else fmean(values)
    return (
        f"{share:.0%} of the groups had equal rewards over 10 steps"
        if share is not None and share > 0.8
        else None
    )


def _reward_flat(window: Window) -> str | None:
    values = window.last("reward/mean", 60)
    if values is None:
        return None
    before, after = values[:30], values[30:]
    noise = (stdev(before) ** 2 / 30 + stdev(after) ** 2 / 30) ** 0.5
    gain = fmean(after) - fmean(before)
    solved = window.last("group/solved_all_share", 10)
    if gain > 2 * noise or (solved is not None and fmean(solved) > 0.8):
        return None
    return f"mean reward rose by {gain:+.3g} over 60 steps, within its noise of ±{2 * noise:.2g}"


def _truncated(window: Window) -> str | None:
    values = window.last("length/truncated_share", 20)
    if values is None:
        return None
    before, after = fmean(values[:10]), fmean(values[10:])
    return (
        f"{after:.0%} of the completions ended at the length limit, {before:.0%} ten steps ago"
        if after > 0.2 and after > before
        else None
    )


def _trainer_idle(window: Window) -> str | None:
    values = window.last("idle/trainer_share", 10)
    share = None if values is None else fmean(values)
    return f"the trainer waited {share:.0%} of 10 steps" if share is not None and share > 0.25 else None


def _rollout_idle(window: Window) -> str | None:
    sources = [values[-12:] for values in window.times.get("idle/rollout_share", ()) if len(values) >= 12]
    share = fmean(fmean(values) for values in sources) if sources else None
    return (
        f"the engines were idle {share:.0%} of the last minute"
        if share is not None and share > 0.25
        else None
    )


def _over_bound(window: Window) -> str | None:
    values = window.last("staleness/over_bound_share", 10)
    if values is None:
        return None
    if window.bound_holds:
        return (
            f"{values[-1]:.1%} of a batch was over the bound that on_straggler promises"
            if values[-1] > 0
            else None
        )
    share = fmean(values)
    return f"{share:.0%} of what was trained on over 10 steps was over the bound" if share > 0.05 else None


def _slow_sync(window: Window) -> str | None:
    published, steps = window.last("time/publish_seconds", 10), window.last("time/step_seconds", 10)
    if published is None or steps is None or not sum(steps):
        return None
    share = sum(published) / sum(steps)
    return f"publishing weights blocked the trainer {share:.0%} of 10 steps" if share > 0.1 else None


def _engine_restarts(window: Window) -> str | None:
    rises = [values[-1] - values[0] for values in window.times.get("engine/restarts", ()) if values]
    count = sum(rises)
    return f"engines were restarted {count:.0f} times in the last hour" if count > 2 else None


def _reward_errors(window: Window) -> str | None:
    failed = sum(values[-1] for values in window.times.get("reward/verifier_errors", ()) if values)
    scored = sum(values[-1] for values in window.times.get("reward/scored", ()) if values)
    share = failed / (failed + scored) if failed + scored >= 20 else 0.0
    return f"{share:.1%} of the completions were not scored: the reward failed" if share > 0.05 else None


def _stalled(window: Window) -> str | None:
    silent = window.seconds_since_step
    if silent is None:
        return None
    usual = median(window.steps.get("time/step_seconds", ()) or (0.0,))
    bound = max(5 * usual, STALL_SECONDS)
    return (
        f"no train step for {silent / 60:.0f} minutes, usually one in {usual:.3g} s"
        if silent > bound
        else None
    )


RULES: tuple[AlertRule, ...] = (
    AlertRule("stalled", "critical", "No progress", "Look at the gate's reason on the live page: with none, at the logs of the job that others wait for.", _stalled),
    AlertRule("nonfinite_steps", "critical", "Steps are not finite", "Lower trainer.learning_rate, or clip more (trainer.max_grad_norm).", _nonfinite),
    AlertRule("mismatch_drift", "critical", "Engine and trainer drift apart", "Behaviour log-probabilities are no longer those of the weights: look for engines that are STALE, a kernel or precision that changed.", _mismatch_drift),
    AlertRule("entropy_collapse", "warning", "Entropy collapses", "The policy stops exploring: raise clip_high, add an entropy bonus, lower the learning rate, or take harder prompts.", _entropy_collapse),
    AlertRule("entropy_jump", "warning", "Entropy jumps", "Often the step before a collapse of the reward: lower the learning rate or max staleness; go back to the checkpoint before it.", _entropy_jump),
    AlertRule("weight_off", "warning", "Importance weights are off", "w should average 1: lower max staleness, or the learning rate.", _weight_off),
    AlertRule("clipping", "warning", "Much is clipped", "Steps are too large for the clip range: more minibatches make it worse; lower the learning rate.", _clipping),
    AlertRule("gradient_spike", "warning", "Gradient norm spikes", "One batch pulls hard: look at its trajectories; lower trainer.max_grad_norm if it repeats.", _gradient_spike),
    AlertRule("no_signal", "warning", "Groups teach nothing", "Prompts are too easy or too hard: filter groups without variance (rollout.filter), change the prompts, or raise the group size.", _no_signal),
    AlertRule("reward_flat", "info", "Reward is flat", "Check a few trajectories by hand; then the learning rate, the share of groups without variance, and the reward itself.", _reward_flat),
    AlertRule("truncated", "warning", "Completions hit the length limit", "Raise rollout.max_new_tokens, or penalise length before it is cut (algorithm.overlong).", _truncated),
    AlertRule("over_bound", "warning", "Data is staler than the bound", "With on_straggler: keep this is a choice; wait or drop obeys the bound, at a cost that the live page shows.", _over_bound),
    AlertRule("trainer_idle", "info", "The trainer waits", "Give the run more engines, or fewer trainer ranks; a longer max staleness hides uneven lengths.", _trainer_idle),
    AlertRule("rollout_idle", "info", "The engines wait", "The gate is closed most of the time: give the trainer more ranks, the run fewer engines, or raise max staleness.", _rollout_idle),
    AlertRule("slow_sync", "warning", "Weight sync is slow", "Look at sync timings: a slow disk is the usual cause.", _slow_sync),
    AlertRule("engine_restarts", "warning", "Engines keep restarting", "Read the rollout jobs' last log lines: out of memory is the usual cause (rollout.engine_max_total_tokens).", _engine_restarts),
    AlertRule("reward_errors", "warning", "The reward fails", "Read the reward service's log; groups that cannot be scored are dropped, never scored 0.", _reward_errors),
)  # fmt: skip

BY_STEP = (
    "policy/entropy", "weight/mean", "mismatch/logprob_abs_mean", "policy/clip_low_share", "policy/clip_high_share",
    "optim/grad_norm", "optim/nonfinite_skips", "group/zero_variance_share", "group/solved_all_share", "reward/mean",
    "length/truncated_share", "idle/trainer_share", "staleness/over_bound_share", "time/publish_seconds",
    "time/step_seconds",
)  # fmt: skip
FROM_THE_START = ("policy/entropy", "mismatch/logprob_abs_mean")
BY_TIME = ("idle/rollout_share", "engine/restarts", "reward/scored", "reward/verifier_errors")


def judge(window: Window) -> dict[str, str]:
    """Name of each rule that speaks up, with its sentence."""
    return {rule.name: said for rule in RULES if (said := rule.judge(window)) is not None}
