"""What the controller leaves in its outbox: the live pipeline, staleness per step, samples, the closing summary."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gpu_agents.job import Job
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.batch_assembler import TrainedBatch
from gpu_agents.rollout.controller.controller import Controller
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
from oolong.contracts.evaluation import PROMPT_SCORES, PromptScores
from oolong.contracts.rollout import Group, Trajectory
from oolong.contracts.telemetry import (
    ENVIRONMENT,
    LONGEST_TOKENS,
    Document,
    Histogram,
    Note,
    Outbox,
    Points,
    Summary,
    TrajectoryLine,
)

log = logging.getLogger(__name__)

SAMPLED_GROUPS_PER_STEP = 2
TIME_POINT_SECONDS = 5


@dataclass
class Sample:
    group: Group
    member: int
    trajectory: Trajectory
    because: list[str] = field(default_factory=list)

    @property
    def reward(self) -> float:
        return self.trajectory.reward or 0.0


class ControllerTelemetry:
    def __init__(self, job: Job, outbox: Outbox, template: ChatTemplate) -> None:
        self._job = job
        self._outbox = outbox
        self._template = template
        self._last_point = -TIME_POINT_SECONDS
        self._progress = AttemptProgress()

    def publish(self, controller: Controller, *, now: float) -> None:
        """The pipeline document (about once a second) and, every few seconds, buffer and gate over time."""
        self._progress.look(controller, now=now)
        self._write_pipeline(controller)
        x = self._job.seconds_since_start(now)
        if x - self._last_point >= TIME_POINT_SECONDS:
            self._last_point = x
            values = {
                "buffer/groups": float(len(controller.buffered)),
                "gate/running_groups": float(len(controller.running)),
                "gate/live_engines": float(len(controller.engines.all())),
                "gate/admissible_groups": float(controller.admission().groups),
                **self._progress.standstill_values(now=now),
                **ledger_values(controller),
            }
            self._outbox.write(Points(axis="time", x=x, values=values))

    def trained(self, batch: TrainedBatch) -> None:
        """Staleness of a batch that became version `batch.version`, and a sample of its groups."""
        # The one complete account of what was trained on; it shows that recovery leaves no gap and no repeat.
        log.info("version %d was trained on %s", batch.version, " ".join(g.group_id for g in batch.groups))
        staleness = batch.staleness
        values = staleness_values(staleness, bound=batch.bound) | left_values(batch)
        values["staleness/exceeded_groups"] = float(batch.groups_over_bound)
        self._outbox.write(Points(axis="step", x=batch.version, values=values))
        for name, histogram in (
            ("staleness/consumed_trajectories", staleness.by_trajectory),
            ("staleness/consumed_tokens", staleness.by_token),
            ("staleness/dropped_tokens", batch.dropped.tokens_by_lag()),
            ("length/response_tokens", lengths(batch.groups)),
        ):
            if not histogram:
                continue
            self._outbox.write(Histogram(name=name, x=batch.version, counts=_labelled(histogram)))
        for sample in sample_trajectories(batch.groups):
            self._outbox.write(self._line(batch.version, sample))

    def evaluation(self, scores: EvaluationScores, by_prompt: PromptScores | None) -> None:
        values = evaluation_values(scores)
        self._outbox.write(Points(axis="step", x=scores.version, values=values))
        if by_prompt is not None:
            self._outbox.write(Document(name=PROMPT_SCORES, value=msgspec.to_builtins(by_prompt)))

    def note(self, kind: str, message: str) -> None:
        self._outbox.write(Note(kind=kind, message=message))

    def close(self, controller: Controller) -> None:
        """The closing lines: the last pipeline, and the summaries."""
        self._write_pipeline(controller)
        self._outbox.write(Summary(name="controller", value=summary(controller)))
        scores = {label: msgspec.to_builtins(s) for label, s in controller.evaluations.scores.items()}
        self._outbox.write(Summary(name="evaluation", value=scores))
        self._outbox.close()

    def _write_pipeline(self, controller: Controller) -> None:
        value = pipeline(controller) | {"milestones": self._progress.milestones}
        self._outbox.write(Document(name="pipeline", value=value))

    def _line(self, step: int, sample: Sample) -> TrajectoryLine:
        group, trajectory = sample.group, sample.trajectory
        runs = version_runs(trajectory)
        # Of a very long one the completion alone: a line must fit one shipment.
        told = len(trajectory.token_ids) <= LONGEST_TOKENS
        texts, position = [], 0
        for _version, count in runs if told else ():
            span = trajectory.token_ids[position : position + count]
            texts.append(self._template.decode(span, skip_special_tokens=False))
            position += count
        return TrajectoryLine(
            step=step,
            group_id=group.group_id,
            prompt=group.prompt,
            answer=group.answer,
            completion=self._template.decode(trajectory.token_ids, skip_special_tokens=False),
            reward=trajectory.reward or 0.0,
            policy_versions=[number for run in runs for number in run],
            version_texts=texts,
            finish_reason=trajectory.finish_reason,
            reward_parts=trajectory.reward_parts,
            verdict=trajectory.verdict,
            sampled_because=sample.because,
            row=group.row,
            member=sample.member,
            score=trajectory.score,
            token_ids=trajectory.token_ids if told else [],
            logprobs=[round(value, 5) for value in trajectory.behaviour_logprobs] if told else [],
            timeline={
                "generate_seconds": trajectory.generate_seconds,
                "reward_seconds": trajectory.reward_seconds,
                "interruptions": float(trajectory.interruptions),
                "turns": float(len(trajectory.turns)),
                "tool_calls": float(trajectory.tool_calls),
            },
        )


def ledger_values(controller: Controller) -> dict[str, float]:
    """The ledger's running totals, in groups and in tokens."""
    groups, tokens = controller.ledger, controller.tokens
    return {
        "ledger/drawn_groups": float(groups.drawn),
        "ledger/trained_groups": float(groups.trained),
        "ledger/dropped_groups": float(sum(groups.dropped.values())),
        "ledger/failed_groups": float(groups.dropped.get(DropReason.ERROR, 0)),
        "ledger/generated_tokens": float(tokens.generated),
        "ledger/trained_tokens": float(tokens.trained),
        "ledger/dropped_tokens": float(sum(tokens.dropped.values())),
        "ledger/lost_tokens": float(tokens.lost_to_recovery),
    }


def pipeline(controller: Controller) -> dict[str, Any]:
    """The document `pipeline`: where groups are now, what the gate says, what became of everything so far."""
    state = controller.state()
    ledger = msgspec.to_builtins(state.ledger)
    return {
        "stages": {
            "prompts": state.ledger.waiting,
            "running": state.ledger.running,
            "buffer": state.ledger.buffered,
            "training": state.ledger.taken,
        },
        "gate": {
            "version": state.newest_version,
            "max_staleness": controller.rules.gate.max_staleness,
            "groups_per_step": controller.rules.gate.groups_per_step,
            "max_concurrent_groups": controller.rules.gate.max_concurrent_groups,
            "on_straggler": controller.rules.straggler_policy,
            "admissible": state.admissible_groups,
            "refusal": state.refusal,
        },
        "ledger": ledger | {"balances": controller.ledger.balances},
        "workflow_errors": dict(controller.counts.workflow_errors),
        "tokens": msgspec.to_builtins(state.tokens) | {"balances": controller.tokens.balances},
        "engines": [
            {"worker": e.worker_id, "version": e.version, "stale": e.stale} for e in controller.engines.all()
        ],
        "engines_joined": controller.engines.joined,
        "engines_left": controller.engines.left,
        "evaluating": controller.evaluations.pending.label if controller.evaluations.pending else None,
        # What the control plane is asked for: an idle slot for this task, for as long as it is named here.
        "evaluator_wanted": controller.evaluations.evaluators.wanted,
        "ending": controller.ending or None,
        "ended": controller.ended,
    }


def summary(controller: Controller) -> dict[str, Any]:
    ledger = msgspec.to_builtins(controller.ledger.counts())
    tokens = msgspec.to_builtins(controller.tokens.counts())
    lags = controller.consumed.by_trajectory
    bound = controller.rules.gate.max_staleness
    bias = controller.groups.length_bias
    dropped = controller.groups.dropped
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
            "balances": controller.ledger.balances,
        },
        "tokens": tokens | {"balances": controller.tokens.balances},
        "staleness": {
            "max_configured": bound,
            "on_straggler": controller.rules.straggler_policy,
            "mean": mean(lags) if lags else None,
            "p95": percentile(lags, 0.95) if lags else None,
            "max": max(lags) if lags else None,
            # Each batch against the bound of its take: a bound that was changed since says nothing of it.
            "exceeded_groups": controller.consumed.groups_over_bound,
            "share_over_configured": controller.consumed.over_bound / sum(lags.values()) if lags else None,
            "histogram": _labelled(lags),
            "straggler_wait_seconds": controller.counts.straggler_wait_seconds,
            "token_histogram": _labelled(controller.consumed.by_token),
            "dropped_token_histogram": {r: _labelled(lags) for r, lags in dropped.by_token.items()},
            "dropped_histogram": {r: _labelled(lags) for r, lags in dropped.by_trajectory.items()},
            "mean_tokens_dropped": bias.mean_dropped,
            "mean_tokens_kept": bias.mean_kept,
            "kept_over_finished": bias.kept_over_finished,
        },
        "filter": {
            "kind": controller.rules.filter.kind,
            "finished": controller.filtering.finished,
            "filtered": controller.filtering.filtered,
        },
        "workflow_errors": dict(controller.counts.workflow_errors),
        "interruptions": controller.consumed.interruptions,
        "trajectories_spanning_versions": controller.consumed.trajectories_spanning_versions,
        "acks": controller.counts.acks,
        "failed_loads": controller.counts.failed_loads,
        "versions_announced": controller.counts.versions_announced,
    }


def _labelled(histogram: dict[int, int]) -> dict[str, int]:
    return {str(lag): count for lag, count in sorted(histogram.items())}


def staleness_values(staleness: BatchStaleness, *, bound: int) -> dict[str, float]:
    lags = staleness.by_trajectory
    return {
        "staleness/mean": mean(lags),
        "staleness/max": float(max(lags)),
        "staleness/p95": float(percentile(lags, 0.95)),
        "staleness/token_mean": mean(staleness.by_token),
        "staleness/over_bound_share": fraction_over(lags, bound),
        "staleness/bound": float(bound),
        "staleness/version_span_mean": sum(staleness.spans) / len(staleness.spans),
        "staleness/version_span_max": float(max(staleness.spans)),
        "staleness/interrupted_share": staleness.interrupted / staleness.trajectories,
    }


def evaluation_values(scores: EvaluationScores) -> dict[str, float]:
    """The chart's part of an evaluation; the summary has every k of pass@k."""
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
        "eval/truncated_share": scores.truncated_share,
        "eval/seconds": scores.seconds,
    }
    return {name: value for name, value in values.items() if value is not None}


def left_values(batch: TrainedBatch) -> dict[str, float]:
    """What the step's metrics say of that which was made and not trained on."""
    dropped = sum(batch.dropped.tokens_by_lag().values())
    values: dict[str, float | None] = {
        "staleness/dropped_token_share": dropped / (dropped + sum(batch.staleness.by_token.values())),
        "group/filtered_share": batch.filtered_share,
        "length/kept_mean": batch.length_bias.mean_kept,
        "length/dropped_mean": batch.length_bias.mean_dropped,
        "length/kept_over_finished": batch.length_bias.kept_over_finished,
    }
    return {name: value for name, value in values.items() if value is not None}


def lengths(groups: list[Group]) -> dict[int, int]:
    """Trajectories by completion length, in buckets named by their least length: two to a doubling."""
    return dict(Counter(length_bucket(len(t.token_ids)) for group in groups for t in group.trajectories))


def length_bucket(length: int) -> int:
    """The largest of 0, 1, 2, 3, 4, 6, 8, 12, 16 ... that is not above `length`: its two leading bits."""
    shift = max(0, length.bit_length() - 2)
    return length >> shift << shift


def sample_groups(groups: list[Group]) -> list[Group]:
    """Of every step the two groups whose ids have the smallest sha256."""
    return sorted(groups, key=_lot)[:SAMPLED_GROUPS_PER_STEP]


def sample_trajectories(groups: list[Group]) -> list[Sample]:
    """The sampling rule: two groups whole, and of the rest of the batch the trajectories with the highest and the
    lowest reward, the longest one and the one of the most versions. It hangs on the batch alone: where several are
    alike, on the sha256 of their group's id, then on their place in it."""
    every = [
        Sample(group=group, member=member, trajectory=trajectory)
        for group in sorted(groups, key=_lot)
        for member, trajectory in enumerate(group.trajectories)
    ]
    if not every:
        return []
    whole = {group.group_id for group in sample_groups(groups)}
    for sample in every:
        if sample.group.group_id in whole:
            sample.because.append("group")
    # max and min take the first of equals.
    max(every, key=lambda s: s.reward).because.append("highest_reward")
    min(every, key=lambda s: s.reward).because.append("lowest_reward")
    max(every, key=lambda s: len(s.trajectory.token_ids)).because.append("longest")
    max(every, key=lambda s: version_span(s.trajectory)).because.append("widest_span")
    return [sample for sample in every if sample.because]


def _lot(group: Group) -> bytes:
    return hashlib.sha256(group.group_id.encode()).digest()


def version_runs(trajectory: Trajectory) -> list[tuple[int, int]]:
    """Run-length pairs (version, tokens) of a trajectory; the environment's stretches have version ENVIRONMENT."""
    runs: list[tuple[int, int]] = []
    for sampled_by, is_sampled in zip(trajectory.policy_versions, trajectory.loss_mask, strict=True):
        version = sampled_by if is_sampled else ENVIRONMENT
        if runs and runs[-1][0] == version:
            runs[-1] = (version, runs[-1][1] + 1)
        else:
            runs.append((version, 1))
    return runs
