"""What the controller writes to its outbox: live pipeline, staleness per step, trajectory samples, final summary."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpu_agents.job import Job
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.batch_assembler import TrainedBatch
from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.ledger import DropReason
from gpu_agents.rollout.controller.progress import AttemptProgress
from gpu_agents.rollout.controller.staleness_stats import (
    BatchStaleness,
    fraction_over,
    mean,
    percentile,
    version_span,
)
from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.token_characters import TokenCharacters
from oolong.contracts.evaluation import PROMPT_SCORES, PromptScores
from oolong.contracts.metrics import ACCURACY_BY_SOURCE, GROUPS_BY_SOURCE, REWARD_BY_SOURCE
from oolong.contracts.rollout import Group, TrainedTokens, Trajectory
from oolong.contracts.telemetry import (
    ENVIRONMENT,
    LONGEST_TOKENS,
    Histogram,
    Note,
    Outbox,
    Points,
    StateSnapshot,
    Summary,
    TrajectoryLine,
)

log = logging.getLogger(__name__)

SAMPLED_GROUPS_PER_STEP = 2
RECORDED_TOKENS_PER_STEP = 65_536  # of the sampled trajectories, for which the trainer reports its own values
TIME_POINT_SECONDS = 5


@dataclass
class TrajectorySample:
    group: Group
    index: int  # of the trajectory in its group
    trajectory: Trajectory
    reasons: list[str] = field(default_factory=list)  # why it was sampled

    @property
    def reward(self) -> float:
        return self.trajectory.reward or 0.0


class ControllerTelemetry:
    def __init__(
        self, job: Job, outbox: Outbox, template: ChatTemplate, *, source_of: Callable[[int], str]
    ) -> None:
        """`source_of(row)` returns the source of a dataset row, "" where rows have none."""
        self._job = job
        self._outbox = outbox
        self._template = template
        self._characters = TokenCharacters(template.tokenizer)
        self._source_of = source_of
        self._last_point = -TIME_POINT_SECONDS
        self._progress = AttemptProgress()

    def publish(self, state: ControllerState, *, now: float) -> None:
        """Write the pipeline (about once a second) and, every few seconds, the metrics over time."""
        self._progress.update(state, now=now)
        self._write_pipeline(state)
        x = self._job.seconds_since_start(now)
        if x - self._last_point >= TIME_POINT_SECONDS:
            self._last_point = x
            values = {
                "buffer/groups": float(len(state.groups.buffered)),
                "gate/running_groups": float(len(state.groups.running)),
                "gate/live_engines": float(len(state.engines.all())),
                "gate/admissible_groups": float(state.admission().groups),
                **self._progress.stall_metrics(now=now),
                **ledger_metrics(state),
            }
            self._outbox.write(Points(axis="time", x=x, values=values))

    def trained(self, batch: TrainedBatch, tokens: Sequence[TrainedTokens] = ()) -> None:
        """Write the staleness of a trained batch and a sample of its trajectories with the trainer's values."""
        # The only complete list of trained groups: it shows that recovery skips none and repeats none.
        log.info("version %d was trained on %s", batch.version, " ".join(g.group_id for g in batch.groups))
        staleness = batch.staleness
        values = staleness_metrics(staleness, bound=batch.bound) | selection_metrics(batch)
        values["staleness/exceeded_groups"] = float(batch.exceeded_groups)
        values |= source_metrics(batch.groups, self._source_of)
        self._outbox.write(Points(axis="step", x=batch.version, values=values))
        for name, histogram in (
            ("staleness/consumed_trajectories", staleness.by_trajectory),
            ("staleness/consumed_tokens", staleness.by_token),
            ("staleness/dropped_tokens", batch.dropped.tokens_by_lag()),
            ("response_length/tokens", lengths(batch.groups)),
        ):
            if not histogram:
                continue
            self._outbox.write(Histogram(name=name, x=batch.version, counts=_labelled(histogram)))
        recorded = {(one.group_id, one.member): one for one in tokens}
        for sample in sample_trajectories(batch.groups):
            of_trainer = recorded.get((sample.group.group_id, sample.index))
            self._outbox.write(self._trajectory_line(batch.version, sample, of_trainer))

    def evaluation(self, scores: EvaluationScores, by_prompt: PromptScores | None) -> None:
        values = evaluation_metrics(scores)
        self._outbox.write(Points(axis="step", x=scores.version, values=values))
        if by_prompt is not None:
            self._outbox.write(StateSnapshot(name=PROMPT_SCORES, value=msgspec.to_builtins(by_prompt)))

    def note(self, kind: str, message: str) -> None:
        self._outbox.write(Note(kind=kind, message=message))

    def close(self, state: ControllerState) -> None:
        """Write the last pipeline and the summaries."""
        self._write_pipeline(state)
        self._outbox.write(Summary(name="controller", value=summary(state)))
        scores = {label: msgspec.to_builtins(s) for label, s in state.evaluations.scores.items()}
        self._outbox.write(Summary(name="evaluation", value=scores))
        self._outbox.close()

    def _write_pipeline(self, state: ControllerState) -> None:
        value = pipeline(state) | {"milestones": self._progress.milestones}
        self._outbox.write(StateSnapshot(name="pipeline", value=value))

    def _trajectory_line(
        self, step: int, sample: TrajectorySample, of_trainer: TrainedTokens | None
    ) -> TrajectoryLine:
        group, trajectory = sample.group, sample.trajectory
        runs = version_runs(trajectory)
        # A very long trajectory has no tokens in its line: a line must fit one upload.
        with_tokens = len(trajectory.token_ids) <= LONGEST_TOKENS
        texts, position = [], 0
        for _version, count in runs if with_tokens else ():
            span = trajectory.token_ids[position : position + count]
            texts.append(self._template.decode(span, skip_special_tokens=False))
            position += count
        completion = self._template.decode(trajectory.token_ids, skip_special_tokens=False)
        return TrajectoryLine(
            step=step,
            group_id=group.group_id,
            prompt=group.prompt,
            answer=group.answer,
            completion=completion,
            reward=trajectory.reward or 0.0,
            policy_versions=[number for run in runs for number in run],
            version_texts=texts,
            finish_reason=trajectory.finish_reason,
            reward_parts=trajectory.reward_parts,
            reward_result=trajectory.reward_result,
            reward_text=trajectory.reward_text,
            sample_reasons=sample.reasons,
            row=group.row,
            member=sample.index,
            score=trajectory.score,
            token_ids=trajectory.token_ids if with_tokens else [],
            logprobs=[round(value, 5) for value in trajectory.behavior_logprobs] if with_tokens else [],
            token_chars=self._characters.count(trajectory.token_ids, completion) if with_tokens else [],
            trainer_logprobs=of_trainer.logprobs if of_trainer is not None else [],
            advantages=of_trainer.advantages if of_trainer is not None else [],
            timeline={
                "generate_seconds": trajectory.generate_seconds,
                "reward_seconds": trajectory.reward_seconds,
                "interruptions": float(trajectory.interruptions),
                "turns": float(len(trajectory.turns)),
                "tool_calls": float(trajectory.tool_calls),
            },
        )


def ledger_metrics(state: ControllerState) -> dict[str, float]:
    """The ledger's running totals, in groups and in tokens."""
    groups, tokens = state.ledger, state.tokens
    return {
        "ledger/sampled_groups": float(groups.drawn),
        "ledger/trained_groups": float(groups.trained),
        "ledger/dropped_groups": float(sum(groups.dropped.values())),
        "ledger/failed_groups": float(groups.dropped.get(DropReason.ERROR, 0)),
        "ledger/generated_tokens": float(tokens.generated),
        "ledger/trained_tokens": float(tokens.trained),
        "ledger/dropped_tokens": float(sum(tokens.dropped.values())),
        "ledger/lost_tokens": float(tokens.lost_to_recovery),
    }


def pipeline(state: ControllerState) -> dict[str, Any]:
    """The live pipeline: groups by state, the gate, the ledgers, the engines."""
    status, gate = state.status(), state.config.gate
    ledger = msgspec.to_builtins(status.ledger)
    return {
        "stages": {
            "prompts": status.ledger.waiting,
            "running": status.ledger.running,
            "buffer": status.ledger.buffered,
            "training": status.ledger.taken,
        },
        "gate": {
            "version": status.newest_version,
            "max_staleness": gate.max_staleness,
            "groups_per_step": gate.groups_per_step,
            "max_concurrent_groups": gate.max_concurrent_groups,
            "on_straggler": state.config.straggler_policy,
            "admissible": status.admissible_groups,
            "refusal": status.refusal,
        },
        "ledger": ledger | {"balances": state.ledger.balances},
        "workflow_errors": dict(state.counters.workflow_errors),
        "tokens": msgspec.to_builtins(status.tokens) | {"balances": state.tokens.balances},
        "engines": [
            {"worker": e.worker_id, "version": e.version, "stale": e.stale} for e in state.engines.all()
        ],
        "engines_joined": state.engines.joined,
        "engines_left": state.engines.left,
        "evaluating": state.evaluations.pending.label if state.evaluations.pending else None,
        # A request to the control plane: an idle slot for this task, for as long as it is named here.
        "evaluator_wanted": state.evaluations.evaluators.requested_task,
        "ending": state.ending or None,
        "ended": state.ended,
    }


def summary(state: ControllerState) -> dict[str, Any]:
    ledger = msgspec.to_builtins(state.ledger.counts())
    tokens = msgspec.to_builtins(state.tokens.counts())
    lags = state.consumed.by_trajectory
    bound = state.config.gate.max_staleness
    bias = state.groups.selection_bias
    dropped = state.groups.dropped
    return {
        "ledger": {
            "drawn": ledger["drawn"],
            "trained": ledger["trained"],
            "dropped_by_reason": ledger["dropped"],
            "waiting": ledger["waiting"],
            "running": ledger["running"],
            "buffered": ledger["buffered"],
            "taken": ledger["taken"],
            "late_submits": ledger["late_submits"],
            "errors": ledger["errors"],
            "balances": state.ledger.balances,
        },
        "tokens": tokens | {"balances": state.tokens.balances},
        "staleness": {
            "max_configured": bound,
            "on_straggler": state.config.straggler_policy,
            "mean": mean(lags) if lags else None,
            "p95": percentile(lags, 0.95) if lags else None,
            "max": max(lags) if lags else None,
            # Each batch against the bound in force when it was taken, which may have changed since.
            "exceeded_groups": state.consumed.exceeded_groups,
            "exceeded_frac": state.consumed.exceeded / sum(lags.values()) if lags else None,
            "histogram": _labelled(lags),
            "straggler_wait_seconds": state.counters.straggler_wait_seconds,
            "token_histogram": _labelled(state.consumed.by_token),
            "dropped_token_histogram": {r: _labelled(lags) for r, lags in dropped.by_token.items()},
            "dropped_histogram": {r: _labelled(lags) for r, lags in dropped.by_trajectory.items()},
            "mean_tokens_dropped": bias.mean_dropped,
            "mean_tokens_kept": bias.mean_trained,
            "selection_bias": bias.ratio,
        },
        "filter": {
            "kind": state.config.filter.kind,
            "finished": state.filtering.finished,
            "filtered": state.filtering.filtered,
        },
        "workflow_errors": dict(state.counters.workflow_errors),
        "interruptions": state.consumed.interruptions,
        "trajectories_spanning_versions": state.consumed.trajectories_spanning_versions,
        "acks": state.counters.acks,
        "failed_loads": state.counters.failed_loads,
        "versions_announced": state.counters.versions_announced,
    }


def _labelled(histogram: dict[int, int]) -> dict[str, int]:
    return {str(lag): count for lag, count in sorted(histogram.items())}


def staleness_metrics(staleness: BatchStaleness, *, bound: int) -> dict[str, float]:
    lags = staleness.by_trajectory
    return {
        "staleness/mean": mean(lags),
        "staleness/max": float(max(lags)),
        "staleness/p95": float(percentile(lags, 0.95)),
        "staleness/token_mean": mean(staleness.by_token),
        "staleness/exceeded_frac": fraction_over(lags, bound),
        "staleness/bound": float(bound),
        "staleness/version_span_mean": sum(staleness.spans) / len(staleness.spans),
        "staleness/version_span_max": float(max(staleness.spans)),
        "staleness/interrupted_frac": staleness.interrupted / staleness.trajectories,
    }


def evaluation_metrics(scores: EvaluationScores) -> dict[str, float]:
    """What charts show of an evaluation; the summary has every k of pass@k."""
    best = scores.pass_at.get(scores.samples)
    values: dict[str, float | None] = {
        "eval/greedy": scores.greedy,
        "eval/greedy_low": scores.greedy_interval[0] if scores.greedy_interval else None,
        "eval/greedy_high": scores.greedy_interval[1] if scores.greedy_interval else None,
        "eval/sampled": scores.sampled,
        "eval/sampled_low": scores.sampled_interval[0] if scores.sampled_interval else None,
        "eval/sampled_high": scores.sampled_interval[1] if scores.sampled_interval else None,
        "eval/pass_at_k": best.value if best else None,
        "eval/pass_at_k_low": best.low if best else None,
        "eval/pass_at_k_high": best.high if best else None,
        "eval/accuracy": scores.accuracy,
        "eval/accuracy_low": scores.accuracy_interval[0] if scores.accuracy_interval else None,
        "eval/accuracy_high": scores.accuracy_interval[1] if scores.accuracy_interval else None,
        "eval/mean_tokens": scores.mean_tokens,
        "eval/truncated_frac": scores.truncated_frac,
        "eval/seconds": scores.seconds,
        **{f"{ACCURACY_BY_SOURCE}{source}": found.value for source, found in scores.by_source.items()},
    }
    return {name: value for name, value in values.items() if value is not None}


def selection_metrics(batch: TrainedBatch) -> dict[str, float]:
    """What was generated since the previous step and not trained on."""
    dropped = sum(batch.dropped.tokens_by_lag().values())
    values: dict[str, float | None] = {
        "staleness/dropped_token_frac": dropped / (dropped + sum(batch.staleness.by_token.values())),
        "group/filtered_frac": batch.filtered_fraction,
        "response_length/trained_mean": batch.selection_bias.mean_trained,
        "response_length/dropped_mean": batch.selection_bias.mean_dropped,
        "response_length/selection_bias": batch.selection_bias.ratio,
    }
    return {name: value for name, value in values.items() if value is not None}


def source_metrics(groups: list[Group], source_of: Callable[[int], str]) -> dict[str, float]:
    """Of each source that the batch has rows of: its groups and the mean reward of its rollouts."""
    rewards: dict[str, list[float]] = {}
    sizes: Counter[str] = Counter()
    for group in groups:
        if source := source_of(group.row):
            sizes[source] += 1
            rewards.setdefault(source, []).extend(t.reward or 0.0 for t in group.trajectories)
    return {
        f"{REWARD_BY_SOURCE}{source}": sum(values) / len(values) for source, values in rewards.items()
    } | {f"{GROUPS_BY_SOURCE}{source}": float(count) for source, count in sizes.items()}


def lengths(groups: list[Group]) -> dict[int, int]:
    """Trajectories by completion length, in buckets named by their smallest length: two per doubling."""
    return dict(Counter(length_bucket(len(t.token_ids)) for group in groups for t in group.trajectories))


def length_bucket(length: int) -> int:
    """The largest of 0, 1, 2, 3, 4, 6, 8, 12, 16 ... that is not above `length`: its two leading bits."""
    shift = max(0, length.bit_length() - 2)
    return length >> shift << shift


def sample_groups(groups: list[Group]) -> list[Group]:
    """The two groups of the step whose ids have the smallest sha256."""
    return sorted(groups, key=_digest)[:SAMPLED_GROUPS_PER_STEP]


def sample_trajectories(groups: list[Group]) -> list[TrajectorySample]:
    """All trajectories of two groups are sampled, and of the whole batch the ones with the highest and the lowest
    reward, the longest one and the one with the most versions. The sample depends on the batch alone: ties are broken
    by the sha256 of the group id, then by the index in the group."""
    samples = [
        TrajectorySample(group=group, index=index, trajectory=trajectory)
        for group in sorted(groups, key=_digest)
        for index, trajectory in enumerate(group.trajectories)
    ]
    if not samples:
        return []
    whole = {group.group_id for group in sample_groups(groups)}
    for sample in samples:
        if sample.group.group_id in whole:
            sample.reasons.append("group")
    # max and min return the first of equals.
    max(samples, key=lambda s: s.reward).reasons.append("highest_reward")
    min(samples, key=lambda s: s.reward).reasons.append("lowest_reward")
    max(samples, key=lambda s: len(s.trajectory.token_ids)).reasons.append("longest")
    max(samples, key=lambda s: version_span(s.trajectory)).reasons.append("widest_span")
    return [sample for sample in samples if sample.reasons]


def recorded_trajectories(groups: list[Group]) -> list[tuple[str, int]]:
    """(group id, member) of the sampled trajectories for which the trainer reports its values, of limited size."""
    recorded, tokens = [], 0
    for sample in sample_trajectories(groups):
        length = len(sample.trajectory.token_ids)
        if length <= LONGEST_TOKENS and tokens + length <= RECORDED_TOKENS_PER_STEP:
            recorded.append((sample.group.group_id, sample.index))
            tokens += length
    return recorded


def _digest(group: Group) -> bytes:
    return hashlib.sha256(group.group_id.encode()).digest()


def version_runs(trajectory: Trajectory) -> list[tuple[int, int]]:
    """Run-length pairs (version, tokens) of a trajectory; environment tokens have version ENVIRONMENT."""
    runs: list[tuple[int, int]] = []
    for sampled_by, is_sampled in zip(trajectory.policy_versions, trajectory.loss_mask, strict=True):
        version = sampled_by if is_sampled else ENVIRONMENT
        if runs and runs[-1][0] == version:
            runs[-1] = (version, runs[-1][1] + 1)
        else:
            runs.append((version, 1))
    return runs
