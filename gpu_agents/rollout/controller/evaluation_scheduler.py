"""Schedules evaluations over the run's versions and engines: when one is due, who runs it, what came of it.

A version under evaluation is pinned until its result arrives or the evaluation is given up (SEMANTICS section 9).
"""

from __future__ import annotations

from gpu_agents.rollout.controller.engine_registry import EngineRegistry
from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.evaluations import (
    ATTEMPTS,
    REQUESTED_PREFIX,
    EvaluationPlan,
    Evaluations,
    is_between_steps,
)
from gpu_agents.rollout.controller.versions import Versions
from oolong.contracts.rollout import (
    EvaluationFailure,
    EvaluationResult,
    EvaluationTask,
    EvaluatorReply,
    EvaluatorRequest,
)

NO_ENGINE_SECONDS = 60.0  # without any engine, after which the end of the run waits for no evaluation


class EvaluationScheduler:
    """`notes` is the controller's list of notes for the run's events. `interrupted_label` is the label of the
    evaluation that the previous attempt had not finished at its snapshot."""

    def __init__(
        self,
        plan: EvaluationPlan | None,
        scores: dict[str, EvaluationScores] | None,
        *,
        interrupted_label: str = "",
        versions: Versions,
        engines: EngineRegistry,
        notes: list[str],
    ) -> None:
        self.evaluations = Evaluations(plan, scores)
        self._interrupted_label = interrupted_label
        self._versions = versions
        self._engines = engines
        self._notes = notes

    # --- who runs it --------------------------------------------------------------------------------------

    def lease(self, worker_id: str, engine_version: int, *, now: float) -> EvaluationTask | None:
        """The pending task, if this engine of the run may have it."""
        usable = [e for e in self._engines.live(now=now) if not e.stale and e.version >= 0]
        return self.evaluations.lease(worker_id, engine_version, live_engines=len(usable), now=now)

    def is_evaluating(self, worker_id: str) -> bool:
        return self.evaluations.pending is not None and self.evaluations.worker_id == worker_id

    def serve_evaluator(self, request: EvaluatorRequest, *, now: float) -> EvaluatorReply:
        """Reply to an evaluator with the task that it joined for, or tell it to leave."""
        evaluators = self.evaluations.evaluators
        if evaluators.get(request.worker_id) is None:
            for predecessor in evaluators.others(request.worker_id, request.task_id):
                self._notes.append(f"{predecessor} is gone: {request.worker_id} replaced it")
                self.evaluations.remove_evaluator(predecessor)
            self._notes.append(
                f"{request.worker_id} joined to run {request.task_id} beside the run's engines"
            )
        evaluator = evaluators.touch(request.worker_id, request.task_id, now=now)
        task = None
        if not evaluator.dismissed:
            task = self.evaluations.lease_to_evaluator(
                request.worker_id, request.task_id, starts=request.ready
            )
        evaluator.dismissed = task is None
        return EvaluatorReply(task=task if request.ready else None, leave=task is None)

    def touch_evaluator(self, worker_id: str, *, now: float) -> bool:
        """Record a sign of life. False if it is not an evaluator: an engine of the run, or one that left."""
        evaluator = self.evaluations.evaluators.get(worker_id)
        if evaluator is not None:
            self.evaluations.evaluators.touch(worker_id, evaluator.task_id, now=now)
        return evaluator is not None

    # --- results ------------------------------------------------------------------------------------------

    def finish(
        self, result: EvaluationResult, *, from_evaluator: bool
    ) -> tuple[str, EvaluationScores] | None:
        """Return label and scores, or None for a repeated or outdated result."""
        finished = self.evaluations.finish(result)
        if finished is None:
            return None
        task, scores = finished
        self._versions.unpin(task.version)
        took = f"took {result.worker_id}, beside the run's engines," if from_evaluator else "took one engine"
        self._notes.append(
            f"evaluation {task.label} of version {task.version} {took} for {scores.seconds:.1f} s"
        )
        return task.label, scores

    def fail(self, failure: EvaluationFailure) -> bool:
        """Count a failed attempt. True once the evaluation is given up, so that nothing waits for it."""
        task = self.evaluations.fail(failure)
        if task is None:
            return False
        self._versions.unpin(task.version)
        self._notes.append(
            f"the evaluation {task.label} was given up after {ATTEMPTS} attempts: {failure.message}"
        )
        return True

    # --- when one is due ----------------------------------------------------------------------------------

    def request(self, label: str) -> bool:
        """Request one of the newest version and pin its files. False if there is nothing to evaluate."""
        weights = self._versions.newest
        if weights is None or not self.evaluations.request(label, weights):
            return False
        self._versions.pin(weights.version)
        return True

    def request_at_start(self) -> None:
        plan = self.evaluations.plan
        if plan is not None and plan.at_start:
            self.request("start")

    def request_if_due(self, *, last_version: int) -> None:
        """Between steps; the last version is evaluated by the closing evaluation."""
        plan, version = self.evaluations.plan, self._versions.number
        if plan is None or not plan.is_due(version) or version >= last_version:
            return
        pending = self.evaluations.pending
        if pending is not None and (self.evaluations.worker_id or self.evaluations.evaluators.has_priority):
            doing = "is still running" if self.evaluations.worker_id else "waits for its engine"
            self._notes.append(f"the evaluation step-{version} was skipped: {pending.label} {doing}")
            return
        if pending is not None:
            self._notes.append(
                f"the evaluation {pending.label} was skipped: no engine could be leased for it before "
                f"step-{version} (it takes two engines, or evaluation.allow_blocking)"
            )
            self.abandon()
        self.request(f"step-{version}")

    @property
    def unfinished(self) -> str:
        """Label of the pending one between steps, which the next attempt repeats; "" if there is none."""
        pending = self.evaluations.pending
        return pending.label if pending is not None and is_between_steps(pending) else ""

    def request_interrupted(self, *, last_version: int) -> None:
        """Repeat the evaluation that the previous attempt did not finish, of the version that this attempt starts
        with: the other weights are deleted."""
        label, self._interrupted_label = self._interrupted_label, ""
        version = self._versions.number
        if not label or version >= last_version or self.evaluations.pending is not None:
            return
        new_label = label if label.startswith(REQUESTED_PREFIX) else f"step-{version}"
        if self.request(new_label):
            self._notes.append(
                f"the evaluation {label} was not finished before the run was interrupted: version {version} is "
                f"evaluated as {new_label}"
            )

    def request_now(self, number: int, *, ending: bool) -> str:
        """A user's request for the newest version, on the only engine too. Returns a note with the outcome."""
        if self.evaluations.plan is None:
            return "no evaluation: the run's spec has no evaluation section"
        if self.evaluations.pending is not None:
            return f"no second evaluation: {self.evaluations.pending.label} is in progress"
        if ending or self._versions.newest is None:
            return "no evaluation: there is no version to evaluate now"
        label = f"{REQUESTED_PREFIX}{number}"
        self.request(label)
        cost, evaluators = "", self.evaluations.evaluators
        if len(self._engines.all()) < 2:
            cost = "; the only engine generates nothing for the run during it"
            if evaluators.requested_task:
                cost += f", unless an idle slot joins for it within {evaluators.wait_seconds:g} s"
        return f"version {self._versions.number} is evaluated as {label}{cost}"

    def request_at_end(self, *, completed: bool) -> bool:
        """Request the closing evaluation instead of a pending one. False if the end has nothing to wait for."""
        if self.evaluations.pending is not None:
            reason = (
                "was skipped: the run has ended" if completed else "was not finished: the run was interrupted"
            )
            self._notes.append(f"the evaluation {self.evaluations.pending.label} {reason}")
        self.abandon()
        plan = self.evaluations.plan
        return completed and plan is not None and plan.at_end and self.request("end")

    # --- timeouts -----------------------------------------------------------------------------------------

    def tick(self, *, now: float, ending: bool) -> bool:
        """Apply timeouts. False if the end of the run must not wait for the pending evaluation: no engine is left."""
        evaluators = self.evaluations.evaluators
        evaluators.poll(now=now)
        for worker_id in evaluators.expired(now=now):
            self.evaluations.remove_evaluator(worker_id)
            self._notes.append(f"{worker_id} timed out")
        pending = self.evaluations.pending
        if pending is None:
            return True
        live = {engine.worker_id for engine in self._engines.live(now=now)}
        live |= {evaluator.worker_id for evaluator in evaluators.all()}
        if self.evaluations.worker_id and self.evaluations.worker_id not in live:
            self.evaluations.release(self.evaluations.worker_id)
        last_seen_at = self._engines.last_seen_at
        if ending and last_seen_at is not None and now - last_seen_at > NO_ENGINE_SECONDS:
            self._notes.append(f"the evaluation {pending.label} was skipped: no rollout worker is left")
            self.abandon()
            return False
        newer = pending.version != self._versions.number
        if pending.label == "start" and newer and not self.evaluations.worker_id:
            self._notes.append("the evaluation start was skipped: no engine has version 0 any more")
            self.abandon()
        return True

    def abandon(self) -> None:
        if self.evaluations.pending is not None:
            self._versions.unpin(self.evaluations.pending.version)
        self.evaluations.abandon()
