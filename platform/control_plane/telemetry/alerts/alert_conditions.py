"""The condition of each alert: one sentence with the numbers in it, or None.

A metric without values raises no alert.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, median, stdev

from control_plane.telemetry.alerts.alert_window import START_STEPS, Window

STALL_SECONDS = 600.0
FIRST_STEP_SECONDS = 1800.0
BOOT_SECONDS = 600.0
STANDSTILL_SECONDS = 120.0
UNCLAIMED_SECONDS = 300.0
UNLOADED_SECONDS = 300.0
MIN_SAMPLES = 20  # scores, or groups, before a share of failures says anything


def entropy_collapse(window: Window) -> str | None:
    start, now = window.start.get("policy/entropy", ()), window.last("policy/entropy", 5)
    if len(start) < START_STEPS or now is None or len(window.steps["policy/entropy"]) <= START_STEPS:
        return None
    before, after = fmean(start), fmean(now)
    return f"entropy is {after:.3g} nats, {after / before:.0%} of its start" if after < 0.3 * before else None


def entropy_jump(window: Window) -> str | None:
    values = window.last("policy/entropy", 25)
    if values is None:
        return None
    before, after = fmean(values[:20]), fmean(values[20:])
    return (
        f"entropy went from {before:.3g} to {after:.3g} nats within 5 steps"
        if after > 2 * before > 0
        else None
    )


def importance_ratio_bias(window: Window) -> str | None:
    values = window.last("importance_ratio/mean", 5)
    mean = None if values is None else fmean(values)
    return f"mean w is {mean:.3g} over 5 steps" if mean is not None and not 0.5 <= mean <= 2.0 else None


def importance_ratio_variance(window: Window) -> str | None:
    spreads, means = window.last("importance_ratio/std", 5), window.last("importance_ratio/mean", 5)
    if spreads is None or fmean(spreads) <= 1.0:
        return None
    said = f"w spreads by {fmean(spreads):.3g} around its mean over 5 steps"
    if means is None:
        return said
    # E[w²] - 1 under the behavior policy, the second moment that the published heuristics bound by 1.
    chi_square = fmean(spreads) ** 2 + fmean(means) ** 2 - 1
    return f"{said} (chi-square {chi_square:.3g})"


def low_effective_sample_size(window: Window) -> str | None:
    values = window.last("importance_ratio/effective_sample_frac", 5)
    share = None if values is None else fmean(values)
    return (
        f"under w the batch counts for {share:.0%} of its tokens over 5 steps"
        if share is not None and share < 0.3
        else None
    )


def mismatch_drift(window: Window) -> str | None:
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


def mismatch_large(window: Window) -> str | None:
    """The mean of |log-probability difference| is never below the KL that the published bound of 0.1 is on."""
    values = window.last("mismatch/logprob_abs_mean", 3)
    mean = None if values is None else fmean(values)
    return (
        f"engine and trainer differ by {mean:.2g} nats a token over 3 steps"
        if mean is not None and mean > 0.1
        else None
    )


def clipping(window: Window) -> str | None:
    low, high = window.last("policy/clip_low_frac", 10), window.last("policy/clip_high_frac", 10)
    share = None if low is None or high is None else fmean(low) + fmean(high)
    return (
        f"{share:.0%} of the loss tokens were clipped over 10 steps"
        if share is not None and share > 0.3
        else None
    )


def gradient_spike(window: Window) -> str | None:
    values = window.last("optim/grad_norm", 21)
    if values is None:
        return None
    usual = median(values[:-1])
    return (
        f"the gradient norm is {values[-1]:.3g}, usually {usual:.3g}" if values[-1] > 5 * usual > 0 else None
    )


def nonfinite(window: Window) -> str | None:
    values = window.last("optim/skipped_steps", 1)
    return (
        f"{values[0]:.0f} train steps were skipped: not finite"
        if values is not None and values[0] > 0
        else None
    )


def zero_advantage_groups(window: Window) -> str | None:
    values = window.last("group/zero_variance_frac", 10)
    share = None if values is None else fmean(values)
    return (
        f"{share:.0%} of the groups had equal rewards over 10 steps"
        if share is not None and share > 0.8
        else None
    )


def reward_constant(window: Window) -> str | None:
    start, now = window.start.get("reward/std", ()), window.last("reward/std", 5)
    if len(start) < START_STEPS or now is None or len(window.steps["reward/std"]) <= START_STEPS:
        return None
    before, after = fmean(start), fmean(now)
    return (
        f"rewards spread by {after:.3g}, {after / before:.0%} of their start"
        if after < 0.05 * before
        else None
    )


def reward_flat(window: Window) -> str | None:
    values = window.last("reward/mean", 60)
    if values is None:
        return None
    before, after = values[:30], values[30:]
    noise = (stdev(before) ** 2 / 30 + stdev(after) ** 2 / 30) ** 0.5
    gain = fmean(after) - fmean(before)
    solved = window.last("group/all_correct_frac", 10)
    if gain > 2 * noise or (solved is not None and fmean(solved) > 0.8):
        return None
    return f"mean reward rose by {gain:+.3g} over 60 steps, within its noise of ±{2 * noise:.2g}"


def truncated(window: Window) -> str | None:
    values = window.last("response_length/truncated_frac", 20)
    if values is None:
        return None
    before, after = fmean(values[:10]), fmean(values[10:])
    return (
        f"{after:.0%} of the completions ended at the length limit, {before:.0%} ten steps ago"
        if after > 0.2 and after > before
        else None
    )


def trainer_idle(window: Window) -> str | None:
    values = window.last("idle/trainer_frac", 10)
    share = None if values is None else fmean(values)
    return f"the trainer waited {share:.0%} of 10 steps" if share is not None and share > 0.25 else None


def rollout_idle(window: Window) -> str | None:
    sources = [values[-12:] for values in window.times.get("idle/rollout_frac", ()) if len(values) >= 12]
    share = fmean(fmean(values) for values in sources) if sources else None
    return (
        f"the engines were idle {share:.0%} of the last minute"
        if share is not None and share > 0.25
        else None
    )


def staleness_exceeded(window: Window) -> str | None:
    values = window.last("staleness/exceeded_frac", 10)
    if values is None:
        return None
    if window.enforces_bound:
        return (
            f"{values[-1]:.1%} of a batch was over the bound that on_straggler promises"
            if values[-1] > 0
            else None
        )
    share = fmean(values)
    return f"{share:.0%} of what was trained on over 10 steps was over the bound" if share > 0.05 else None


def buffer_full(window: Window) -> str | None:
    depths = [depth for values in window.times.get("buffer/groups", ()) for depth in values]
    # Without a step the trainer is not slow, it stands still: other rules speak of that.
    if window.buffer_capacity <= 0 or len(depths) < MIN_SAMPLES or not _rise(window, "ledger/trained_groups"):
        return None
    share = sum(depth >= window.buffer_capacity for depth in depths) / len(depths)
    return (
        f"{window.buffer_capacity} finished groups, all that the gate allows, waited for the trainer {share:.0%} "
        "of the last hour"
        if share > 0.5
        else None
    )


def memory_growth(window: Window) -> str | None:
    values = window.last("memory/trainer_peak_bytes", 60)
    if values is None:
        return None
    first, middle, last = values[0], values[29], values[-1]
    # Twice in a row: what is allocated once, at the first long batch, is no leak.
    return (
        f"the trainer's main memory grew from {first / 1e9:.3g} to {last / 1e9:.3g} GB over 60 steps, and still grows"
        if middle > 1.05 * first > 0 and last > 1.05 * middle
        else None
    )


def slow_weight_sync(window: Window) -> str | None:
    published, steps = window.last("time/publish_seconds", 10), window.last("time/step_seconds", 10)
    if published is None or steps is None or not sum(steps):
        return None
    share = sum(published) / sum(steps)
    return f"publishing weights blocked the trainer {share:.0%} of 10 steps" if share > 0.1 else None


def engine_restarts(window: Window) -> str | None:
    rises = [values[-1] - values[0] for values in window.times.get("engine/restarts", ()) if values]
    count = sum(rises)
    return f"engines were restarted {count:.0f} times in the last hour" if count > 2 else None


def reward_errors(window: Window) -> str | None:
    failed = sum(values[-1] for values in window.times.get("reward/verifier_errors", ()) if values)
    scored = sum(values[-1] for values in window.times.get("reward/scored", ()) if values)
    share = failed / (failed + scored) if failed + scored >= MIN_SAMPLES else 0.0
    return f"{share:.1%} of the completions were not scored: the reward failed" if share > 0.05 else None


def rollout_errors(window: Window) -> str | None:
    failed, trained = _rise(window, "ledger/failed_groups"), _rise(window, "ledger/trained_groups")
    if failed + trained < MIN_SAMPLES:
        return None
    share = failed / (failed + trained)
    return (
        f"{share:.1%} of the groups of the last hour failed in their workflow or reward"
        if share > 0.05
        else None
    )


def stalled(window: Window) -> str | None:
    bound = max(5 * window.median_step_seconds, STALL_SECONDS)
    silent, first = window.seconds_since_step, False
    if silent is None:
        # Of an attempt whose first step is due: its first batch has to be generated before.
        silent, first, bound = window.generating_seconds, True, max(bound, FIRST_STEP_SECONDS)
    if silent is None or silent <= bound:
        return None
    usual = f", usually one in {window.median_step_seconds:.3g} s" if window.median_step_seconds else ""
    if first:
        return f"no train step of this attempt in {silent / 60:.0f} minutes of generation{usual}"
    return f"no train step for {silent / 60:.0f} minutes{usual}"


def boot_slow(window: Window) -> str | None:
    if not window.boot_stage or window.generating_seconds is not None or window.boot_seconds <= BOOT_SECONDS:
        return None
    return f"{window.boot_seconds / 60:.0f} minutes after its slots were leased, still: {window.boot_stage}"


def engine_boot(window: Window) -> str | None:
    return "; ".join(window.failed_boots) or None


def gate_closed(window: Window) -> str | None:
    seconds = window.standstill("gate/stalled_seconds")
    return (
        f"for {seconds / 60:.0f} minutes no group has been running, waiting or admissible, and too few are finished "
        "for a batch"
        if seconds > STANDSTILL_SECONDS
        else None
    )


def batch_unclaimed(window: Window) -> str | None:
    seconds = window.standstill("buffer/batch_unclaimed_seconds")
    return (
        f"a batch has been finished for {seconds / 60:.0f} minutes, and the trainer has not taken one"
        if seconds > UNCLAIMED_SECONDS
        else None
    )


def weights_unloaded(window: Window) -> str | None:
    seconds = window.standstill("weight_sync/unloaded_seconds")
    return (
        f"for {seconds / 60:.0f} minutes no engine has acknowledged the newest published weights"
        if seconds > UNLOADED_SECONDS
        else None
    )


def _rise(window: Window, name: str) -> float:
    """How much a running total has risen within the window, over its sources; a restarted one counts from there."""
    rises = 0.0
    for values in window.times.get(name, ()):
        rises += sum(max(0.0, after - before) for before, after in pairwise(values))
    return rises
