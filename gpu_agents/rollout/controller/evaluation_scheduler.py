"""The verbs of evaluations over the run's versions and engines: who may do one, when one is due, what became of it.

A version that is to be evaluated is pinned until its result is here or it is given up (SEMANTICS section 9).
"""

from __future__ import annotations

from gpu_agents.rollout.controller.engine_registry import EngineRegistry
from gpu_agents.rollout.controller.evaluation_scores import EvaluationScores
from gpu_agents.rollout.controller.evaluations import (
    ASKED,
    ATTEMPTS,
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

SILENCE_SECONDS = 60.0  # of all workers, before the end of the run waits for no evaluation any more


class EvaluationScheduler:
    """`notes` is the controller's list of sentences for the run's events; `left_over` the label of the evaluation that
    the attempt before this one had not finished at its snapshot."""

    def __init__(
        self,
        plan: EvaluationPlan | None,
        scores: dict[str, EvaluationScores] | None,
        *,
        left_over: str = "",
        versions: Versions,
        engines: EngineRegistry,
        notes: list[str],
    ) -> None:
        self.evaluations = Evaluations(plan, scores)
        self._left_over = left_over
        self._versions = versions
        self._engines = engines
        self._notes = notes

    # --- who does it --------------------------------------------------------------------------------------

    def lease(self, worker_id: str, engine_version: int, *, now: float) -> EvaluationTask | None:
        """The pending task, for an engine of the run that may have it."""
        usable = [e for e in self._engines.live(now=now) if not e.stale and e.version >= 0]
        return self.evaluations.lease(worker_id, engine_version, live_engines=len(usable), now=now)

    def is_at_it(self, worker_id: str) -> bool:
        return self.evaluations.pending is not None and self.evaluations.worker_id == worker_id

    def serve_evaluator(self, request: EvaluatorRequest, *, now: float) -> EvaluatorReply:
        """For an engine that is none of the run's: the task that it came for, or that nothing is left of it."""
        evaluators = self.evaluations.evaluators
        if evaluators.of(request.worker_id) is None:
            for dead in evaluators.others(request.worker_id, request.task_id):
                self._notes.append(f"{dead} is gone: {request.worker_id} has come in its place")
                self.evaluations.evaluator_left(dead)
            self._notes.append(
                f"{request.worker_id} has come for {request.task_id}, and is no engine of the run"
            )
        evaluator = evaluators.hear(request.worker_id, request.task_id, now=now)
        task = None
        if not evaluator.told_to_leave:
            task = self.evaluations.lease_to_evaluator(
                request.worker_id, request.task_id, begins=request.ready
            )
        evaluator.told_to_leave = task is None
        return EvaluatorReply(task=task if request.ready else None, leave=task is None)

    def hear_evaluator(self, worker_id: str, *, now: float) -> bool:
        """A sign of life. False when it is no evaluator: an engine of the run, or somebody who left."""
        evaluator = self.evaluations.evaluators.of(worker_id)
        if evaluator is not None:
            self.evaluations.evaluators.hear(worker_id, evaluator.task_id, now=now)
        return evaluator is not None

    # --- what came of it ----------------------------------------------------------------------------------

    def finish(self, result: EvaluationResult, *, by_evaluator: bool) -> tuple[str, EvaluationScores] | None:
        """Label and scores, or None for a repeated or outdated result."""
        finished = self.evaluations.finish(result)
        if finished is None:
            return None
        task, scores = finished
        self._versions.unpin(task.version)
        took = f"took {result.worker_id}, beside the run's engines," if by_evaluator else "took one engine"
        self._notes.append(
            f"evaluation {task.label} of version {task.version} {took} for {scores.seconds:.1f} s"
        )
        return task.label, scores

    def fail(self, failure: EvaluationFailure) -> bool:
        """It is tried again a few times; True when it is given up, for nobody is to wait for it any more."""
        task = self.evaluations.fail(failure)
        if task is None:
            return False
        self._versions.unpin(task.version)
        self._notes.append(
            f"the evaluation {task.label} was given up after {ATTEMPTS} tries: {failure.message}"
        )
        return True

    # --- when one is due ----------------------------------------------------------------------------------

    def request(self, label: str) -> bool:
        """Of the newest version, whose files stay until it is done. False where there is none to do."""
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
        """Between steps; that of the last version is the closing one."""
        plan, version = self.evaluations.plan, self._versions.number
        if plan is None or not plan.is_due(version) or version >= last_version:
            return
        pending = self.evaluations.pending
        if pending is not None and (self.evaluations.worker_id or self.evaluations.evaluators.goes_first):
            doing = "still goes on" if self.evaluations.worker_id else "waits for its engine"
            self._notes.append(f"the evaluation step-{version} was left out: {pending.label} {doing}")
            return
        if pending is not None:
            self._notes.append(
                f"the evaluation {pending.label} was left out: no engine could be leased for it before "
                f"step-{version} (it takes two engines, or evaluation.on_only_engine)"
            )
            self.abandon()
        self.request(f"step-{version}")

    @property
    def unfinished(self) -> str:
        """Label of the pending one, if the next attempt is to make good for it; those of start and end ask for
        themselves."""
        pending = self.evaluations.pending
        return pending.label if pending is not None and is_between_steps(pending) else ""

    def request_left_over(self, *, last_version: int) -> None:
        """Of the version that this attempt begins with: the weights of the other one are gone."""
        label, self._left_over = self._left_over, ""
        version = self._versions.number
        if not label or version >= last_version or self.evaluations.pending is not None:
            return
        again = label if label.startswith(ASKED) else f"step-{version}"
        if self.request(again):
            self._notes.append(
                f"the evaluation {label} was not finished before the run was interrupted: version {version} is "
                f"evaluated as {again}"
            )

    def request_now(self, number: int, *, ending: bool) -> str:
        """Somebody's wish for one of the newest version, on the only engine too. Returns what becomes of it."""
        if self.evaluations.plan is None:
            return "no evaluation: the run's spec has no evaluation section"
        if self.evaluations.pending is not None:
            return f"no second evaluation: {self.evaluations.pending.label} is under way"
        if ending or self._versions.newest is None:
            return "no evaluation: there is no version to evaluate now"
        label = f"{ASKED}{number}"
        self.request(label)
        cost, evaluators = "", self.evaluations.evaluators
        if len(self._engines.all()) < 2:
            cost = "; the only engine generates nothing for the run meanwhile"
            if evaluators.wanted:
                cost += f", unless an idle slot comes for it within {evaluators.ask_seconds:g} s"
        return f"version {self._versions.number} is evaluated as {label}{cost}"

    def request_at_end(self, *, completed: bool) -> bool:
        """In place of what is pending. False when the end has nothing to wait for."""
        if self.evaluations.pending is not None:
            why = (
                "was left out: the run has ended"
                if completed
                else "was not finished: the run was interrupted"
            )
            self._notes.append(f"the evaluation {self.evaluations.pending.label} {why}")
        self.abandon()
        plan = self.evaluations.plan
        return completed and plan is not None and plan.at_end and self.request("end")

    # --- what time changes --------------------------------------------------------------------------------

    def watch(self, *, now: float, ending: bool) -> bool:
        """False when the run's end is not to wait for the pending evaluation any more: nobody is left to do it."""
        evaluators = self.evaluations.evaluators
        evaluators.look(now=now)
        for worker_id in evaluators.silent(now=now):
            self.evaluations.evaluator_left(worker_id)
            self._notes.append(f"{worker_id} fell silent")
        pending = self.evaluations.pending
        if pending is None:
            return True
        live = {engine.worker_id for engine in self._engines.live(now=now)}
        live |= {evaluator.worker_id for evaluator in evaluators.all()}
        if self.evaluations.worker_id and self.evaluations.worker_id not in live:
            self.evaluations.release(self.evaluations.worker_id)
        last_heard = self._engines.last_heard_at
        if ending and last_heard is not None and now - last_heard > SILENCE_SECONDS:
            self._notes.append(f"the evaluation {pending.label} was left out: no rollout worker is left")
            self.abandon()
            return False
        newer = pending.version != self._versions.number
        if pending.label == "start" and newer and not self.evaluations.worker_id:
            self._notes.append("the evaluation start was left out: no engine has version 0 any more")
            self.abandon()
        return True

    def abandon(self) -> None:
        if self.evaluations.pending is not None:
            self._versions.unpin(self.evaluations.pending.version)
        self.evaluations.abandon()
