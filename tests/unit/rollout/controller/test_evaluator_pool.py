"""An evaluation between steps gets an engine beside those of the run, if one comes in time (docs/decisions/0032)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpu_agents.rollout.controller.evaluations import SAME_VERSION_SECONDS
from gpu_agents.rollout.controller.evaluator_pool import BOOT_SECONDS
from gpu_agents.rollout.controller.telemetry import pipeline
from gpu_agents.rollout.worker import evaluator as evaluator_module
from oolong.contracts.rollout import (
    EndRequest,
    EvaluationFailure,
    EvaluationResult,
    EvaluationTask,
    EvaluatorReply,
    EvaluatorRequest,
    PublishedWeights,
    RenewRequest,
)
from oolong.contracts.telemetry import Points
from tests.unit.rollout.controller.test_evaluations import ALICE, BOB, PLAN, Run
from tests.unit.rollout.fake_engine import FakeEngine
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.simulation import assert_ledger_is_true

VISITOR = "evaluator-2/0"
TASK = "step-2-v2"
ASK_SECONDS = 30.0


class Visited(Run):
    """A run whose evaluations may get an engine of their own; version 2 is to be evaluated."""

    def __init__(self, *, workers: tuple[str, ...] = (ALICE, BOB), steps: int = 2) -> None:
        super().__init__(replace(PLAN, evaluator_seconds=ASK_SECONDS), workers=workers)
        for _ in range(steps):
            self.step()
        self.controller.timers.tick(now=0.0)

    @property
    def wanted(self) -> str:
        wanted = pipeline(self.controller.state)["evaluator_wanted"]
        assert isinstance(wanted, str)
        return wanted

    def alive(self, now: float) -> None:
        for worker in self.workers:
            self.controller.workers.renew(RenewRequest(worker_id=worker, claim_ids=[]), now=now)

    def ask(self, worker: str, *, version: int | None = None, now: float = 0.0) -> EvaluationTask | None:
        self.alive(now)
        return super().ask(worker, version=version, now=now)

    def visit(
        self, *, ready: bool = True, now: float = 0.0, worker: str = VISITOR, task: str = TASK
    ) -> EvaluatorReply:
        request = EvaluatorRequest(worker_id=worker, task_id=task, ready=ready)
        return self.controller.workers.serve_evaluator(request, now=now)

    def result(self, worker: str, *, score: float = 1.0) -> bool:
        result = EvaluationResult(
            worker_id=worker, task_id=TASK, greedy_scores=[score, score], sampled_scores=[[score], [score]],
            mean_tokens=4.0, seconds=1.0,
        )  # fmt: skip
        return self.controller.workers.finish_evaluation(result, now=0.0) is not None

    def fails(self, worker: str, cause: str) -> None:
        failure = EvaluationFailure(worker_id=worker, task_id=TASK, cause=cause, message="no")  # type: ignore[arg-type]
        self.controller.workers.fail_evaluation(failure, now=0.0)


def test_an_evaluator_does_it_and_is_no_engine_of_the_run() -> None:
    run = Visited()
    before = (run.controller.state.ledger.counts(), run.controller.state.admission())
    assert run.wanted == TASK
    assert run.ask(ALICE) is None and run.ask(BOB) is None
    assert run.visit(ready=False) == EvaluatorReply()
    reply = run.visit()
    assert reply.task is not None and (reply.task.task_id, reply.task.version) == (TASK, 2)
    assert reply.task.weights is not None and reply.task.weights.version == 2
    assert run.visit() == reply, "an engine that was restarted begins again"
    assert run.ask(ALICE, now=10 * BOOT_SECONDS) is None
    run.step()
    assert [w.version for w in run.controller.state.versions.collect_deletable()] == [0, 1], (
        "its version stays"
    )
    assert run.result(VISITOR)
    assert run.controller.state.evaluations.scores["step-2"].version == 2
    assert run.wanted == ""
    assert run.visit(ready=False).leave and run.visit().leave
    assert run.controller.state.engines.joined == 2
    assert {engine["worker"] for engine in pipeline(run.controller.state)["engines"]} == {ALICE, BOB}
    said = run.controller.timers.tick(now=0.0)
    assert any("took evaluator-2/0, beside the run's engines, for 1.0 s" in note for note in said)
    run.controller.workers.deregister(VISITOR)
    assert run.controller.state.engines.left == 0
    assert before[0].drawn == 8 and before[1].refusal is None
    assert_ledger_is_true(run.controller)


def test_where_nobody_comes_in_time_an_engine_of_the_run_does_it_and_who_comes_late_leaves() -> None:
    run = Visited()
    assert run.ask(ALICE, now=ASK_SECONDS - 1) is None
    assert run.ask(ALICE, now=ASK_SECONDS) is not None
    assert run.wanted == ""
    assert run.visit(now=ASK_SECONDS + 1).leave
    run.controller.workers.deregister(VISITOR)
    assert run.controller.state.evaluations.worker_id == ALICE
    assert run.result(ALICE)


def test_who_has_come_is_waited_for_while_it_boots_and_not_for_ever() -> None:
    run = Visited()
    for now in range(0, int(BOOT_SECONDS), 5):
        assert not run.visit(ready=False, now=now).leave
        assert run.ask(ALICE, now=now) is None
    assert run.ask(ALICE, now=BOOT_SECONDS) is not None
    assert run.visit(now=BOOT_SECONDS).leave


def test_a_silent_one_is_given_up_and_what_it_says_later_counts_once() -> None:
    run = Visited()
    assert run.visit().task is not None
    run.alive(31.0)
    assert f"{VISITOR} timed out" in run.controller.timers.tick(now=31.0)
    assert run.wanted == TASK, "another one may come"
    assert run.ask(ALICE, now=31.0) is not None
    assert run.result(VISITOR, score=0.0), "it had only been slow"
    assert not run.result(ALICE, score=1.0)
    assert run.controller.state.evaluations.scores["step-2"].greedy == 0.0
    assert VISITOR not in {engine.worker_id for engine in run.controller.state.engines.all()}


def test_one_that_has_to_go_leaves_its_task_to_the_next_comer() -> None:
    run = Visited()
    assert run.visit().task is not None
    run.controller.workers.deregister(VISITOR)
    assert run.wanted == TASK and run.ask(ALICE, now=1.0) is None
    assert run.visit(worker="evaluator-3/0", now=2.0).task is not None
    run.controller.workers.deregister("evaluator-3/0")
    assert run.wanted == "", "two have gone: no third one is asked for"
    run.controller.timers.tick(now=4.0)
    assert run.ask(ALICE, now=4.0) is not None


def test_one_that_was_killed_leaves_its_task_to_the_next_comer_at_once() -> None:
    run = Visited()
    assert run.visit().task is not None
    reply = run.visit(worker="evaluator-3/0", ready=False, now=5.0)
    assert not reply.leave, "who was killed says no goodbye, and is not known to be silent yet"
    assert run.visit(worker="evaluator-3/0", now=20.0).task is not None
    run.alive(40.0)
    run.controller.timers.tick(now=40.0)
    assert run.wanted == TASK, "the silence of the first sends the second one away neither"
    assert run.controller.state.evaluations.worker_id == "evaluator-3/0"
    assert not run.visit(worker="evaluator-3/0", ready=False, now=41.0).leave


def test_what_its_engine_cannot_do_is_no_failure_of_the_evaluation() -> None:
    run = Visited()
    for number in range(2):
        worker = f"evaluator-{number}/0"
        assert run.visit(worker=worker).task is not None
        run.fails(worker, "engine")
        assert run.visit(worker=worker).leave
        run.controller.workers.deregister(worker)
    run.controller.timers.tick(now=0.0)
    assert run.ask(ALICE) is not None
    run.fails(ALICE, "engine")
    assert run.controller.state.evaluations.failure is None, (
        "those of the run's own engine are counted from there"
    )


def test_a_reward_that_fails_for_it_is_given_up_after_as_many_tries_as_for_others() -> None:
    run = Visited()
    for _ in range(3):
        assert run.visit().task is not None
        run.fails(VISITOR, "reward")
    assert run.visit().leave
    assert (run.controller.state.evaluations.pending, run.wanted) == (None, "")


def test_the_only_engine_needs_no_consent_for_what_another_does() -> None:
    run = Visited(workers=(ALICE,))
    assert run.ask(ALICE, now=10 * ASK_SECONDS) is None
    assert run.wanted == TASK, "it continues being asked for"
    assert run.visit(now=10 * ASK_SECONDS).task is not None


def test_the_next_that_is_due_does_not_push_out_one_that_waits_for_its_engine() -> None:
    run = Visited()
    run.step()
    run.step()
    assert run.wanted == TASK
    assert any(
        "step-4 was skipped: step-2 waits for its engine" in n for n in run.controller.timers.tick(now=0.0)
    )
    run.alive(ASK_SECONDS)
    run.controller.timers.tick(now=ASK_SECONDS)
    assert run.ask(ALICE, version=4, now=ASK_SECONDS) is None
    assert run.ask(ALICE, version=4, now=ASK_SECONDS + SAME_VERSION_SECONDS) is not None


@pytest.mark.parametrize("task", ["step-2-v1", "step-4-v4", "", "end-v2"])
def test_who_comes_for_what_is_not_due_leaves(task: str) -> None:
    run = Visited()
    assert run.visit(task=task).leave
    assert run.wanted == TASK and run.controller.state.evaluations.worker_id == ""


def test_no_slot_is_asked_for_where_none_can_come_nor_for_the_start_and_the_end() -> None:
    without = Run()
    without.step()
    without.step()
    assert pipeline(without.controller.state)["evaluator_wanted"] == ""
    assert without.ask(ALICE) is not None
    ends = Visited(steps=0)
    ends.controller.state.evaluations.plan = replace(PLAN, evaluator_seconds=ASK_SECONDS, at_end=True)
    ends.controller.trainer.end(EndRequest(reason="completed"))
    assert ends.wanted == "" and ends.ask(ALICE) is not None


def test_the_end_of_the_run_sends_it_away_and_waits_until_it_knows() -> None:
    run = Visited()
    assert run.visit().task is not None
    run.controller.trainer.end(EndRequest(reason="completed"))
    for worker in (ALICE, BOB):
        run.controller.workers.state(worker, now=0.0)
    assert run.controller.state.ended and not run.controller.state.end_acked_by_all(now=0.0)
    assert run.visit(ready=False).leave
    assert run.controller.state.end_acked_by_all(now=0.0)


def test_a_request_by_a_person_is_answered_with_what_it_may_cost() -> None:
    run = Visited(workers=(ALICE,), steps=1)
    said = run.controller.evaluate_now(1)
    assert "is evaluated as asked-1; the only engine generates nothing" in said
    assert "unless an idle slot joins for it within 30 s" in said


# --- on engines ----------------------------------------------------------------------------------------------

Make = Callable[..., Harness]
Versions = Callable[[int], PublishedWeights]
SPEC = {
    "evaluation": {
        "split": "train", "prompts": 5, "samples": 2, "every_steps": 2, "at_start": False, "at_end": False,
        "max_new_tokens": 200, "allow_blocking": True,
    },
    "rollout": {"max_new_tokens": 10},
    "staleness": {"max": 2},
}  # fmt: skip


async def until_asked_for(run: Harness, versions: Versions) -> int:
    """Train two steps; returns the version. Nobody of the run takes the task, however slow the machine is."""
    plan = run.controller.state.evaluations.plan
    assert plan is not None
    run.controller.state.evaluations.plan = replace(plan, evaluator_seconds=3600.0)
    await run.trainer.announce(versions(0), "none")
    for version in (1, 2):
        await run.trainer.take(version - 1)
        await run.trainer.announce(versions(version))
    assert run.controller.state.evaluations.evaluators.requested_task == TASK
    return 2


async def test_an_evaluator_scores_its_version_while_the_only_engine_generates_and_training_goes_on(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with FakeEngine() as idle, new_harness(**SPEC) as run:
        worker = run.start_worker(engine.port, engine.api_key)
        version = await until_asked_for(run, versions)
        idle.places = 0  # it decodes nothing until training has moved on
        evaluator = run.start_evaluator(idle.port, idle.api_key, task_id=TASK)
        await run.until(lambda: run.controller.state.evaluations.worker_id == "evaluator-1/0")
        for version in (3, 4):
            await run.trainer.take(version - 1)
            await run.trainer.announce(versions(version))
        assert run.controller.state.evaluations.scores == {}
        idle.places = 1000
        assert await evaluator.task == "ended"
        scores = run.controller.state.evaluations.scores["step-2"]
        assert (scores.version, scores.prompts, idle.loads) == (2, 5, ["2"])
        assert engine.loads == sorted(set(engine.loads)), "it never went back"
        await run.until(lambda: worker.engine.loaded_version == version)
        assert {e.worker_id for e in run.controller.state.engines.all()} == {"rollout-0/0"}
        assert run.controller.state.engines.joined == 1
        counts = run.controller.state.ledger.counts()
        assert counts.trained == 16 and counts.dropped == {}
        assert_ledger_is_true(run.controller)
        told = [line for line in run.lines("evaluator-1") if isinstance(line, Points)]
        assert {name for line in told for name in line.values} == {"evaluator/busy_seconds"}


async def test_an_evaluator_that_is_stopped_deregisters_and_an_engine_of_the_run_takes_over(
    new_harness: Make, engine: FakeEngine, versions: Versions
) -> None:
    async with FakeEngine() as idle, new_harness(**SPEC) as run:
        run.start_worker(engine.port, engine.api_key)
        await until_asked_for(run, versions)
        idle.places = 0
        evaluator = run.start_evaluator(idle.port, idle.api_key, task_id=TASK)
        await run.until(lambda: len(idle.running) >= 15)
        run.controller.state.evaluations.evaluators.wait_seconds = 0.0
        evaluator.stop.set()
        assert await evaluator.task == "stopped"
        await run.until(lambda: "step-2" in run.controller.state.evaluations.scores)
        assert run.controller.state.evaluations.scores["step-2"].version == 2
        assert run.controller.state.evaluations.evaluators.all() == []
        assert_ledger_is_true(run.controller)


async def test_an_evaluator_whose_weights_do_not_load_goes_and_says_why(
    new_harness: Make, engine: FakeEngine, versions: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluator_module, "RETRY_SECONDS", 0.0)
    async with FakeEngine() as idle, new_harness(**SPEC) as run:
        run.start_worker(engine.port, engine.api_key)
        await until_asked_for(run, versions)
        idle.fail_loads = True
        evaluator = run.start_evaluator(idle.port, idle.api_key, task_id=TASK)
        assert await evaluator.task == "ended"
        assert run.controller.state.evaluations.pending is not None, "an engine of the run may still do it"
        notes = [line.message for line in run.lines("evaluator-1") if type(line).__name__ == "Note"]
        assert any(note.startswith("evaluation step-2: ") for note in notes)
