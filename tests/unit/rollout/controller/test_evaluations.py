"""Evaluations between train steps (SEMANTICS section 9): leased out of the claims, at one version, in no ledger."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
from aiohttp import web

from gpu_agents.rewards.reward import Completion
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.evaluation_scores import bootstrap, pass_at_k, score_evaluation, wilson
from gpu_agents.rollout.controller.evaluations import SAME_VERSION_SECONDS, EvaluationPlan
from gpu_agents.rollout.controller.prompt_order import one_source
from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.controller.telemetry import evaluation_metrics
from oolong.contracts.rollout import (
    AckRequest,
    ClaimRequest,
    EndRequest,
    EvaluationResult,
    EvaluationTask,
    PublishedWeights,
    StaleEngineRequest,
    SubmitRequest,
    TakeRequest,
)
from oolong.contracts.run_spec import spec_errors
from oolong.contracts.telemetry import Points
from tests.unit.rollout.fake_engine import FakeEngine, FakeRequest
from tests.unit.rollout.harness import Harness
from tests.unit.rollout.simulation import (
    announcement,
    assert_ledger_is_true,
    finished_group,
    prompt_of,
    rules,
    through_bytes,
)

ALICE, BOB = "rollout-0/0", "rollout-1/0"
PLAN = EvaluationPlan(
    prompts=[prompt_of(0), prompt_of(1)],
    samples=1,
    temperature=1.0,
    at_start=False,
    at_end=False,
    every_steps=2,
)

# --- what it says -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "samples", "k"), [(0, 8, 4), (1, 8, 1), (3, 8, 4), (5, 8, 4), (8, 8, 8)]
)
def test_pass_at_k_is_the_share_of_draws_that_hold_a_success(successes: int, samples: int, k: int) -> None:
    outcomes = [1] * successes + [0] * (samples - successes)
    draws = list(combinations(outcomes, k))
    assert pass_at_k(successes, samples, k) == pytest.approx(sum(map(max, draws)) / len(draws))


def test_wilsons_interval_of_known_shares() -> None:
    assert wilson([1.0] * 8 + [0.0] * 2) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    low, high = wilson([0.0] * 10)
    assert (low, high) == pytest.approx((0.0, 0.2775), abs=1e-4)


def test_the_bootstrap_covers_a_mean_as_the_normal_interval_does() -> None:
    values = [i / 99 for i in range(100)]  # mean 0.5, standard error 0.0293
    low, high = bootstrap(values)
    assert low == pytest.approx(0.5 - 1.96 * 0.0293, abs=0.01)
    assert high == pytest.approx(0.5 + 1.96 * 0.0293, abs=0.01)
    assert bootstrap(values) == (low, high), "the same scores give the same interval"


def test_an_evaluation_has_avg_at_k_pass_at_k_and_greedy() -> None:
    scores = score_evaluation(
        version=3,
        greedy=[1.0, 0.0, 0.0, 0.0],
        sampled=[[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0], [0.0] * 4, [0.5] * 4],
        success_score=1.0,
        mean_tokens=7.0,
        truncated_frac=0.25,
        seconds=2.0,
    )
    assert (scores.greedy, scores.sampled, scores.samples) == (0.25, 7 / 16, 4)
    assert set(scores.pass_at) == {1, 2, 4}
    assert scores.pass_at[1].value == pytest.approx((1 + 1 / 4) / 4)
    assert scores.pass_at[2].value == pytest.approx((1 + 1 / 2) / 4)
    assert scores.pass_at[4].value == pytest.approx(0.5)
    assert scores.greedy_interval == wilson([1.0, 0.0, 0.0, 0.0]), "of what is 0 or 1"
    assert scores.sampled_interval == bootstrap([1.0, 0.25, 0.0, 0.5]), "over the prompts' averages"
    best = scores.pass_at[4]
    assert (best.low, best.high) == wilson([1.0, 1.0, 0.0, 0.0])
    told = evaluation_metrics(scores)
    assert (told["eval/pass_at_k"], told["eval/pass_at_k_low"], told["eval/pass_at_k_high"]) == (
        0.5, best.low, best.high,
    )  # fmt: skip
    assert (told["eval/sampled_low"], told["eval/sampled_high"]) == scores.sampled_interval
    assert (told["eval/greedy_low"], told["eval/greedy_high"]) == scores.greedy_interval
    assert (told["eval/greedy"], told["eval/sampled"], told["eval/truncated_frac"]) == (0.25, 7 / 16, 0.25)


def test_each_source_has_an_accuracy_with_its_interval_and_rows_without_one_count_in_the_whole_only() -> None:
    scores = score_evaluation(
        version=3, greedy=[1.0, 0.0, 0.5, 1.0, 0.0], sampled=[], success_score=0.5, mean_tokens=7.0,
        truncated_frac=0.0, seconds=2.0, sources=["math/a", "math/a", "code", "", "math/a"],
    )  # fmt: skip
    assert {name: found.value for name, found in scores.by_source.items()} == {"math/a": 1 / 3, "code": 1.0}
    assert (scores.by_source["math/a"].low, scores.by_source["math/a"].high) == wilson([1.0, 0.0, 0.0])
    assert scores.accuracy == 3 / 5
    told = evaluation_metrics(scores)
    assert (told["eval/by_source/math/a"], told["eval/by_source/code"]) == (1 / 3, 1.0)


# --- who does it, and when -----------------------------------------------------------------------------------


class Run:
    """A controller whose two engines keep up, driven by hand. B = 4."""

    def __init__(self, plan: EvaluationPlan = PLAN, *, workers: tuple[str, ...] = (ALICE, BOB)) -> None:
        self.controller = Controller(
            ControllerState(
                config=rules(max_staleness=4, policy="keep"),
                prompts=one_source(range(99)),
                prompt_of=prompt_of,
                evaluation=plan,
            )
        )
        self.workers = workers
        self.controller.trainer.announce(announcement(0, "none"))
        self.load()

    def load(self) -> None:
        for worker in self.workers:
            version = self.controller.state.versions.number
            self.controller.workers.acknowledge(
                AckRequest(worker_id=worker, version=version, ok=True), now=0.0
            )

    def ask(self, worker: str, *, version: int | None = None, now: float = 0.0) -> EvaluationTask | None:
        engine_version = self.controller.state.versions.number if version is None else version
        request = ClaimRequest(worker_id=worker, engine_version=engine_version, max_groups=0)
        return self.controller.workers.claim(request, now=now).evaluation

    def step(self) -> None:
        version = self.controller.state.versions.number
        worker = self.workers[-1]
        request = ClaimRequest(worker_id=worker, engine_version=version, max_groups=4)
        pending, self.controller.state.evaluations.pending = self.controller.state.evaluations.pending, None
        groups = self.controller.workers.claim(request, now=0.0).groups
        self.controller.state.evaluations.pending = pending
        for claimed in groups:
            group = finished_group(claimed, [version])
            self.controller.workers.submit(
                SubmitRequest(worker_id=worker, claim_id=claimed.claim_id, group=group), now=0.0
            )
        self.controller.trainer.take(TakeRequest(version=version, groups=4), now=0.0)
        self.controller.trainer.announce(announcement(version + 1))
        self.load()

    def finish(self, task: EvaluationTask) -> None:
        result = EvaluationResult(
            worker_id=ALICE, task_id=task.task_id, greedy_scores=[1.0, 0.0], sampled_scores=[[1.0], [1.0]],
            mean_tokens=4.0, seconds=1.0,
        )  # fmt: skip
        self.controller.workers.finish_evaluation(result, now=0.0)


def test_every_so_many_steps_one_engine_is_leased_and_the_other_goes_on() -> None:
    run = Run()
    run.step()
    assert run.ask(ALICE) is None
    run.step()
    task = run.ask(ALICE)
    assert task is not None
    assert (task.label, task.version) == ("step-2", 2)
    assert run.ask(BOB) is None
    claimed = run.controller.workers.claim(
        ClaimRequest(worker_id=BOB, engine_version=2, max_groups=2), now=0.0
    )
    assert len(claimed.groups) == 2
    run.finish(task)
    assert run.controller.state.evaluations.scores["step-2"].version == 2
    assert run.ask(ALICE) is None
    assert_ledger_is_true(run.controller)


def test_its_files_stay_while_versions_move_on_and_an_engine_that_moved_on_may_load_them_again() -> None:
    run = Run()
    run.step()
    run.step()
    run.step()
    assert [w.version for w in run.controller.state.versions.collect_deletable()] == [0, 1]
    assert run.ask(ALICE, now=1.0) is None, "an engine that has the version is asked for first"
    task = run.ask(ALICE, now=1.0 + SAME_VERSION_SECONDS)
    assert task is not None
    assert task.weights is not None
    assert (task.version, task.weights.version) == (2, 2)
    run.finish(task)
    assert [w.version for w in run.controller.state.versions.collect_deletable()] == [2]


def test_the_only_engine_is_leased_on_consent_alone() -> None:
    for consent in (False, True):
        run = Run(replace(PLAN, allow_blocking=consent), workers=(ALICE,))
        run.step()
        run.step()
        assert (run.ask(ALICE) is not None) is consent


@pytest.mark.parametrize("consent", [False, True])
def test_a_stale_engine_evaluates_nothing_and_leaves_the_other_one_as_the_only_one(consent: bool) -> None:
    run = Run(replace(PLAN, allow_blocking=consent))
    run.step()
    run.step()
    stale = StaleEngineRequest(worker_id=ALICE, version=2, max_difference=0.3)
    run.controller.trainer.mark_stale(stale, now=0.0)
    assert run.ask(ALICE) is None
    assert (run.ask(BOB) is not None) is consent


def test_one_that_leaves_in_the_middle_gives_the_evaluation_up_at_once() -> None:
    run = Run(replace(PLAN, allow_blocking=True))
    run.step()
    run.step()
    task = run.ask(ALICE)
    assert task is not None
    assert run.ask(BOB) is None
    run.controller.workers.deregister(ALICE)
    assert run.ask(BOB) == task


def interrupted(run: Run, version: int) -> Controller:
    """The next attempt's controller, from the run's checkpoint at this version."""
    snapshot = through_bytes(run.controller.trainer.snapshot(version))
    run.controller.trainer.end(EndRequest(reason="stopped"))
    resumed = Controller(ControllerState(
        config=run.controller.state.config, prompts=one_source(range(99)), prompt_of=prompt_of, restored=snapshot,
        evaluation=run.controller.state.evaluations.plan,
    ))  # fmt: skip
    resumed.trainer.announce(announcement(version, "none"))
    return resumed


def test_one_that_an_interrupted_run_had_not_finished_is_made_good_at_the_version_it_goes_on_from() -> None:
    run = Run()
    for _ in range(3):
        run.step()
    task = run.ask(ALICE, now=SAME_VERSION_SECONDS) or run.ask(ALICE, now=2 * SAME_VERSION_SECONDS)
    assert task is not None
    assert task.task_id == "step-2-v2"
    resumed = interrupted(run, 3)
    run.finish(task)
    assert run.controller.state.evaluations.scores == {}, "too late: the attempt has ended"
    said = "the evaluation step-2 was not finished"
    assert any(said in note for note in run.controller.timers.tick(now=0.0))
    assert any(f"{said} before" in note and "as step-3" in note for note in resumed.timers.tick(now=0.0))
    pending = resumed.state.evaluations.pending
    assert pending is not None
    assert (pending.task_id, pending.weights) == ("step-3-v3", resumed.state.versions.newest)
    run.controller = resumed
    run.load()
    again = run.ask(ALICE)
    assert again == pending
    run.finish(again)
    assert set(resumed.state.evaluations.scores) == {"step-3"}
    assert interrupted(run, 3).state.evaluations.pending is None, "it is not made twice"


def test_one_that_is_in_the_checkpoint_is_not_made_again_and_an_outdated_result_counts_for_no_other() -> None:
    run = Run()
    run.step()
    run.step()
    task = run.ask(ALICE)
    assert task is not None
    run.finish(task)
    assert interrupted(run, 2).state.evaluations.pending is None
    other = Run()
    for _ in range(4):
        other.step()
    assert other.controller.state.evaluations.pending is not None
    other.finish(task)
    assert other.controller.state.evaluations.scores == {}
    assert other.controller.state.evaluations.pending.label == "step-4"


def test_one_that_was_asked_for_is_made_good_under_its_name() -> None:
    run = Run()
    run.step()
    run.controller.evaluate_now(7)
    pending = interrupted(run, 1).state.evaluations.pending
    assert pending is not None
    assert pending.task_id == "asked-7-v1"


def test_one_of_the_start_asks_for_itself() -> None:
    run = Run(replace(PLAN, at_start=True))
    assert run.controller.state.evaluations.pending is not None
    assert run.controller.trainer.snapshot(0).unfinished_evaluation == ""


def test_where_one_is_due_anyway_and_at_the_end_nothing_is_made_good() -> None:
    due, last = Run(), Run()
    for _ in range(2):
        due.step()
        last.step()
    resumed = interrupted(due, 2)
    pending = resumed.state.evaluations.pending
    assert pending is not None and pending.label == "step-2"
    assert resumed.timers.tick(now=0.0) == []
    last.step()
    gate = replace(last.controller.state.config.gate, total_train_steps=3)
    last.controller.state.config = replace(last.controller.state.config, gate=gate)
    assert interrupted(last, 3).state.evaluations.pending is None
    over = Run()
    over.step()
    over.step()
    over.controller.trainer.end(EndRequest(reason="completed"))
    assert any(
        "step-2 was skipped: the run has ended" in note for note in over.controller.timers.tick(now=0.0)
    )


def test_one_that_found_no_engine_is_left_out_with_a_word_when_the_next_is_due() -> None:
    run = Run(workers=(ALICE,))
    for _ in range(4):
        run.step()
    [note] = [note for note in run.controller.timers.tick(now=0.0) if "evaluation" in note]
    assert "step-2 was skipped: no engine could be leased" in note
    assert run.controller.state.evaluations.pending is not None
    assert run.controller.state.evaluations.pending.label == "step-4"
    assert [w.version for w in run.controller.state.versions.collect_deletable()] == [0, 1, 2, 3]


def test_one_that_still_goes_on_is_not_disturbed_by_the_next() -> None:
    run = Run()
    run.step()
    run.step()
    task = run.ask(ALICE)
    assert task is not None
    run.step()
    run.step()
    assert any(
        "step-4 was skipped: step-2 is still running" in note for note in run.controller.timers.tick(now=0.0)
    )
    run.finish(task)
    assert set(run.controller.state.evaluations.scores) == {"step-2"}


def test_every_steps_with_one_engine_is_refused_without_consent() -> None:
    document = {
        "name": "x",
        "model": {"base_model": "m"},
        "dataset": {"version": "d"},
        "evaluation": {"every_steps": 5},
    }
    [fault] = spec_errors(document)
    assert (fault.pointer, fault.code) == ("/evaluation/every_steps", "evaluation_takes_the_only_engine")
    assert spec_errors(document | {"rollout": {"engines": 2}}) == []
    assert spec_errors(document | {"evaluation": {"every_steps": 5, "allow_blocking": True}}) == []


# --- on engines ----------------------------------------------------------------------------------------------


async def test_an_evaluation_is_of_one_version_while_training_moves_on(
    new_harness: Callable[..., Harness],
    engine: FakeEngine,
    versions: Callable[[int], PublishedWeights],
) -> None:
    """Its completions are longer than several train steps; its reward is not that of training."""
    engine.token_seconds = 0.002
    seen: list[tuple[str, str]] = []

    def reward(completion: Completion) -> float:
        seen.append((completion.purpose, completion.text))
        return 0.5 if completion.purpose == "evaluation" else 1.0

    spec = {
        "evaluation": {
            "split": "train", "prompts": 5, "samples": 2, "every_steps": 2, "at_start": False, "at_end": False,
            "max_new_tokens": 200, "success_score": 0.5,
        },
        "rollout": {"engines": 2, "max_new_tokens": 10},
        "staleness": {"max": 2},
    }  # fmt: skip
    async with (
        FakeEngine(token_seconds=0.002) as second,
        new_harness(reward=reward, **spec) as run,
    ):
        engine.spread = second.spread = 400
        run.start_worker(engine.port, engine.api_key)
        run.start_worker(second.port, second.api_key, index=1)
        await run.trainer.announce(versions(0), "none")
        version = 0
        while "step-2" not in run.controller.state.evaluations.scores:
            groups = await run.trainer.take(version)
            assert {len(t.token_ids) for g in groups for t in g.trajectories} <= set(range(1, 11))
            version += 1
            await run.trainer.announce(versions(version))
            if version == 2:
                await run.until(lambda: run.controller.state.evaluations.worker_id != "")
        assert version > 2, "no version was announced while the evaluation went on"
        scores = run.controller.state.evaluations.scores["step-2"]
        assert (scores.version, scores.prompts, scores.greedy, scores.sampled) == (2, 5, 0.5, 0.5)
        assert scores.pass_at[2].value == 1.0
        assert scores.mean_tokens > 10
        counts = run.controller.state.ledger.counts()
        assert sum(1 for purpose, _ in seen if purpose == "evaluation") >= 15
        assert counts.trained == 4 * version
        assert run.controller.state.tokens.counts().generated <= sum(
            10 for purpose, _ in seen if purpose == "training"
        )
        assert_ledger_is_true(run.controller)
        # The leased engine comes back to the newest version.
        await run.until(lambda: {w.engine.loaded_version for w in run.workers} == {version})
        points = [
            line
            for line in run.lines("controller")
            if isinstance(line, Points) and "eval/greedy" in line.values
        ]
        assert points[0].x == 2
        assert points[0].values["eval/pass_at_k"] == 1.0


class WatchedEngine(FakeEngine):
    def __init__(self) -> None:
        super().__init__()
        self.running_at_load: list[int] = []
        self.held: set[str] = set()

    async def _update(self, call: web.Request) -> web.Response:
        self.running_at_load.append(len(self.running))
        return await super()._update(call)

    def may_decode(self, request: FakeRequest) -> bool:
        """At version 2 two requests do not end by themselves, until it is loaded for the second time."""
        if self.version != "2" or len(self.loads) > 4 or request.rid.startswith("probe"):
            return True
        if len(self.held) < 2:
            self.held.add(request.rid)
        return request.rid not in self.held


async def test_an_engine_that_moved_on_loads_the_version_again_gives_its_groups_away_and_comes_back(
    new_harness: Callable[..., Harness],
    versions: Callable[[int], PublishedWeights],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpu_agents.rollout.controller.evaluations.SAME_VERSION_SECONDS", 0.0)
    evaluation = {
        "split": "train", "prompts": 4, "every_steps": 1, "at_start": False, "at_end": False,
        "allow_blocking": True,
    }  # fmt: skip
    async with WatchedEngine() as engine, new_harness(evaluation=evaluation, staleness={"max": 4}) as run:
        await run.trainer.announce(versions(0), "none")
        worker = run.start_worker(engine.port, engine.api_key)
        await run.trainer.take(0)
        # It is asked for at version 1; the engine learns of it when it has version 2.
        evaluations = run.controller.state.evaluations
        lease = evaluations.lease
        monkeypatch.setattr(evaluations, "lease", lambda *_, **__: None)
        await run.trainer.announce(versions(1))
        await run.until(lambda: worker.engine.loaded_version == 1)  # else a slow machine skips it
        await run.trainer.take(1)
        task, evaluations.pending = evaluations.pending, None
        await run.trainer.announce(versions(2))
        await run.until(lambda: worker.engine.loaded_version == 2 and len(engine.held) == 2)
        evaluations.pending = task
        monkeypatch.setattr(evaluations, "lease", lease)
        await run.until(lambda: "step-1" in evaluations.scores)
        assert engine.loads[:4] == ["0", "1", "2", "1"]
        assert engine.running_at_load[3] == 0, "a group would go on with older weights"
        await run.until(lambda: worker.engine.loaded_version == 2)
        groups = await run.trainer.take(2)
        for trajectory in [t for g in groups for t in g.trajectories]:
            assert trajectory.policy_versions == sorted(trajectory.policy_versions)
        assert run.controller.state.ledger.counts().dropped == {}
        assert_ledger_is_true(run.controller)
