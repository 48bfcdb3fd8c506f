"""What rollout workers and evaluators call: claims, results of groups, weight loads, evaluations."""

from __future__ import annotations

from gpu_agents.rollout.controller.engine_registry import Engine
from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.filtering import is_filtered
from gpu_agents.rollout.controller.group_state import group_tokens, sampled_tokens
from gpu_agents.rollout.controller.group_validation import validate_group
from gpu_agents.rollout.controller.ledger import DropReason
from gpu_agents.rollout.controller.staleness_stats import version_span
from gpu_agents.rollout.controller.state import ControllerState
from oolong.contracts.rollout import (
    AckedProbe,
    AckRequest,
    ClaimedGroup,
    ClaimReply,
    ClaimRequest,
    EvaluationFailure,
    EvaluationResult,
    EvaluatorReply,
    EvaluatorRequest,
    FailRequest,
    LoadClaimReply,
    Refusal,
    ReleaseRequest,
    RenewReply,
    RenewRequest,
    StateReply,
    SubmitRequest,
)


class WorkerApi:
    """Every call with a worker id is a sign of life of that worker. Repeating a call changes nothing."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def claim(self, request: ClaimRequest, *, now: float) -> ClaimReply:
        """Assign groups to an engine that has the newest version: waiting groups first, then new ones."""
        state = self._state
        engine = state.touch(request.worker_id, now=now)
        newest = state.versions.number
        if state.ended:
            engine.end_acked = True
            return ClaimReply(ended=True, newest_version=newest)
        if not engine.stale:
            task = state.evaluation_scheduler.lease(request.worker_id, request.engine_version, now=now)
            if task is not None:
                return ClaimReply(evaluation=task, newest_version=newest)
        groups: list[ClaimedGroup] = []
        refusal = self._engine_refusal(engine, request.engine_version)
        while refusal is None and len(groups) < request.max_groups:
            refusal = self._capacity_refusal()
            if refusal is None:
                groups.append(self._assign_next(request, now=now))
        return ClaimReply(groups=groups, refusal=refusal, newest_version=newest)

    def renew(self, request: RenewRequest, *, now: float) -> RenewReply:
        """Extend the worker's claims; the reply names those that it has lost."""
        state = self._state
        engine = state.touch(request.worker_id, now=now)
        engine.end_acked = engine.end_acked or state.ended
        return RenewReply(
            lost=state.groups.claims.renew(request.claim_ids, request.worker_id, now=now),
            newest_version=state.versions.number,
            ended=state.ended,
        )

    def submit(self, request: SubmitRequest, *, now: float) -> None:
        """Buffer a finished, scored group, or drop it if it is filtered.

        Raises StaleClaim, and ValueError for a group of the wrong shape.
        """
        state, config = self._state, self._state.config
        state.touch(request.worker_id, now=now)
        if state.groups.is_settled(request.claim_id):
            return
        validate_group(request.group, group_size=config.group_size, branching=config.branching)
        group = state.groups.end_claim(
            request.claim_id, request.worker_id, reported_tokens=group_tokens(request.group)
        )
        if group.group_id != request.group.group_id:
            raise ValueError(
                f"claim {request.claim_id} is for group {group.group_id}, not {request.group.group_id}"
            )
        filtered = is_filtered(config.filter, request.group)
        state.filtering.count(filtered=filtered)
        if filtered:
            state.groups.filter(group, request.group)
        else:
            state.groups.finish(group, request.group)
        counters = state.counters
        counters.finished_groups += 1
        counters.consecutive_reward_errors = 0
        counters.consecutive_workflow_errors = 0
        state.consumed.interruptions += sum(t.interruptions for t in request.group.trajectories)
        state.consumed.trajectories_spanning_versions += sum(
            version_span(t) > 1 for t in request.group.trajectories
        )

    def fail(self, request: FailRequest, *, now: float) -> None:
        """Drop a group whose workflow or reward failed. It is never scored 0, and its gate capacity is freed."""
        state, counters = self._state, self._state.counters
        state.touch(request.worker_id, now=now)
        if state.groups.is_settled(request.claim_id):
            return
        group = state.groups.end_claim(
            request.claim_id, request.worker_id, reported_tokens=request.generated_tokens
        )
        reason = DropReason.FILTERED if request.reason == "filtered" else DropReason.ERROR
        state.groups.fail(group, reason, error=request.reason, generated_tokens=request.generated_tokens)
        if request.reason == "reward_error":
            counters.consecutive_reward_errors += 1
        if request.reason == "workflow_error":
            counters.consecutive_workflow_errors += 1
            counters.workflow_errors[request.kind or "other"] += 1
        if reason is DropReason.ERROR:
            counters.last_error = f"{group.group_id}: {request.reason}: {request.message}"

    def release(self, request: ReleaseRequest, *, now: float) -> None:
        """The worker stops. The group waits for another worker, which resumes from its tokens."""
        state = self._state
        state.touch(request.worker_id, now=now)
        if state.groups.is_settled(request.claim_id):
            return
        resumable = sum(sampled_tokens(partial.trajectory) for partial in request.members)
        group = state.groups.end_claim(
            request.claim_id, request.worker_id, reported_tokens=resumable + request.lost_tokens
        )
        state.groups.release(group, request.members, lost_tokens=request.lost_tokens)

    def deregister(self, worker_id: str) -> None:
        """The worker's engine leaves the run."""
        self._state.remove_worker(worker_id)

    def state(self, worker_id: str, *, now: float) -> StateReply:
        engine = self._state.touch(worker_id, now=now)
        engine.end_acked = engine.end_acked or self._state.ended
        return self._state.status()

    def load_claim(self, worker_id: str, *, now: float) -> LoadClaimReply:
        """Protect the newest version's files while the worker loads them."""
        self._state.touch(worker_id, now=now)
        return LoadClaimReply(weights=self._state.versions.claim_load(worker_id, now=now))

    def acknowledge(self, request: AckRequest, *, now: float) -> Engine:
        """Record a finished or failed load, with the probe that the trainer verifies."""
        state = self._state
        state.touch(request.worker_id, now=now)
        state.versions.end_load(request.worker_id)
        engine = state.engines.acknowledge(request.worker_id, request.version, ok=request.ok, now=now)
        if request.ok:
            state.counters.acks += 1
            if request.probe is not None:
                state.probes.append(
                    AckedProbe(worker_id=request.worker_id, version=request.version, probe=request.probe)
                )
        else:
            state.counters.failed_loads += 1
        return engine

    def finish_evaluation(
        self, result: EvaluationResult, *, now: float
    ) -> tuple[str, EvaluationScores] | None:
        """Return the label and the scores, or None for a repeated or outdated result."""
        state = self._state
        from_evaluator = self._touch_evaluating(result.worker_id, now=now)
        finished = state.evaluation_scheduler.finish(result, from_evaluator=from_evaluator)
        if finished is not None and state.ending:
            state.ended = True
        return finished

    def fail_evaluation(self, failure: EvaluationFailure, *, now: float) -> None:
        state = self._state
        self._touch_evaluating(failure.worker_id, now=now)
        if state.evaluation_scheduler.fail(failure) and state.ending:
            state.ended = True

    def serve_evaluator(self, request: EvaluatorRequest, *, now: float) -> EvaluatorReply:
        return self._state.evaluation_scheduler.serve_evaluator(request, now=now)

    def _touch_evaluating(self, worker_id: str, *, now: float) -> bool:
        """Record a sign of life of whoever evaluates. True for an evaluator, which is not an engine of the run."""
        state = self._state
        if state.evaluation_scheduler.touch_evaluator(worker_id, now=now):
            return True
        if state.engines.contains(worker_id):
            state.touch(worker_id, now=now)
        return False

    def _engine_refusal(self, engine: Engine, engine_version: int) -> Refusal | None:
        """Why this engine gets no group, whatever the gate says."""
        state = self._state
        if state.ending:
            return "run_ending"
        if state.versions.newest is None:
            return "paused"
        if engine_version != state.versions.number or engine.stale:
            return "engine_behind"
        if state.evaluation_scheduler.is_evaluating(engine.worker_id):
            return "paused"  # until it reports the evaluation's result
        return None

    def _capacity_refusal(self) -> Refusal | None:
        """Why no engine gets another group. The gate has counted waiting groups already: only concurrency binds."""
        groups = self._state.groups
        if not groups.waiting:
            return self._state.admission().refusal
        at_limit = len(groups.running) >= self._state.config.gate.max_concurrent_groups
        return "concurrency" if at_limit else None

    def _assign_next(self, request: ClaimRequest, *, now: float) -> ClaimedGroup:
        state = self._state
        group, claim = state.groups.assign_next(
            worker_id=request.worker_id,
            engine_version=request.engine_version,
            max_staleness=state.config.gate.max_staleness,
            now=now,
        )
        prompt = state.prompt_of(group.prompt.row)
        return ClaimedGroup(
            claim_id=claim.claim_id,
            group_id=group.group_id,
            row=group.prompt.row,
            prompt_token_ids=prompt.prompt_token_ids,
            prompt=prompt.prompt,
            answer=prompt.answer,
            group_size=state.config.group_size,
            claim_version=group.claim_version,
            partial=group.partial,
        )
