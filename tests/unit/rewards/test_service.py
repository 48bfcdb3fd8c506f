"""The service: scores, errors that are never a 0, and children that hang or die."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpu_agents.job import Job
from gpu_agents.rewards.__main__ import max_error_rate, scorer_of, serve
from gpu_agents.rewards.budget import ErrorBudget
from gpu_agents.rewards.pool import ChildPool
from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.reward import Completion, SandboxFailed, Score, Scorer, ScoringError, VerifierFailed
from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import KEPT_PARTS, InThisProcess, RewardService, ScoreCounts
from gpu_agents.rewards.train_eval_scorer import TrainEvalScorer
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.contracts.rollout import ExecuteReply, ExecuteRequest, ScoreReply, ScoreRequest
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.user_code import EVALUATION_REWARD
from oolong.sandbox import Capabilities, Limits, ProbeResult, Program, SandboxResult, Status, TestResult
from oolong.system.rpc import RpcClient, RpcError
from tests.support import failing_reward
from tests.unit.rewards import hanging_reward


class Served:
    """A service on a free port and a client of it."""

    def __init__(self, scorer: Scorer, budget: ErrorBudget | None = None) -> None:
        self.service = RewardService(scorer, token="secret", budget=budget)

    async def __aenter__(self) -> Served:
        port = await self.service.rpc.start("127.0.0.1", 0)
        self.peer = RpcClient("reward", f"http://127.0.0.1:{port}", "secret", connect_seconds=60)
        self.stranger = RpcClient("reward", f"http://127.0.0.1:{port}", "wrong", connect_seconds=60)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.peer.close()
        await self.stranger.close()
        await self.service.rpc.close()

    async def score(self, completion: str, *, answer: str = "4", row: int = 1) -> ScoreReply:
        request = ScoreRequest(prompt="", completion=completion, answer=answer, finish_reason="stop", row=row)
        return await self.peer.call("score", request, ScoreReply)


async def test_a_score_and_a_token() -> None:
    async with Served(InThisProcess(build_reward("exact_match", {}))) as served:
        assert (await served.score(r"\boxed{4}")).score == 1.0
        assert (await served.score(r"\boxed{5}")).score == 0.0
        request = ScoreRequest(prompt="", completion="", answer="", finish_reason="stop")
        with pytest.raises(RpcError, match="unauthorized"):
            await served.stranger.call("score", request, ScoreReply)


async def test_a_reward_that_raises_gives_an_error_and_no_score() -> None:
    async with Served(InThisProcess(failing_reward.build({}))) as served:
        replies = [await served.score(r"\boxed{4}", row=row) for row in range(6)]
        assert [reply.status for reply in replies] == ["error", "ok", "ok", "error", "ok", "ok"]
        assert replies[0].score is None and "row 0" in replies[0].message
        assert served.service.counts.failed == {"verifier_error": 2}


async def test_a_score_that_is_not_finite_is_an_error() -> None:
    async with Served(InThisProcess(lambda completion: float("nan"))) as served:
        assert (await served.score("x")).status == "error"
        assert served.service.counts.failed == {"verifier_error": 1}


PATIENCE = 60.0  # with what answers


@pytest.fixture
async def pool() -> AsyncIterator[ChildPool]:
    pool = ChildPool(hanging_reward.build, {}, size=1, timeout_seconds=PATIENCE)
    await pool.start()
    yield pool
    await pool.close()


async def test_a_hung_child_is_killed_and_replaced_and_the_next_call_is_served(pool: ChildPool) -> None:
    async with Served(pool) as served:
        pool._timeout_seconds = 0.5
        (first,) = pool._children
        hung = await served.score("hang")
        pool._timeout_seconds = PATIENCE
        assert (hung.status, hung.score, hung.kind) == ("error", None, "verifier_error")
        assert pool.killed == 2, "it is tried twice, and each time its process is killed"
        assert first.process.exitcode == -signal.SIGKILL
        assert (await served.score("fine")).score == 0.5
        died = await served.score("die")
        assert died.status == "error" and "crashed" in died.message
        raised = await served.score("raise")
        assert "ZeroDivisionError: by design" in raised.message
        assert (await served.score("fine")).score == 0.5
        assert pool.killed == 4, "one that raises is not killed"
        assert served.service.counts.failed == {"verifier_error": 3}


async def test_the_answer_to_a_call_that_was_given_up_is_not_taken_for_the_next_ones(pool: ChildPool) -> None:
    given_up = asyncio.create_task(pool.score(of("hang")))
    await asyncio.sleep(0)  # it has a child now, and waits for its answer
    given_up.cancel()
    await asyncio.wait([given_up])
    assert given_up.cancelled() and pool.killed == 1
    assert (await pool.score(of("fine"))).value == 0.5


async def test_the_connection_of_a_killed_child_stays_open_while_its_thread_reads(
    pool: ChildPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed descriptor is free for the next child's pipe, whose message the thread would take."""
    asked, replaced, closed = threading.Event(), threading.Event(), []
    start_child = pool._start_child

    async def start_next() -> None:
        replaced.set()
        await start_child()

    def read_late(connection: Connection, completion: Completion, timeout_seconds: float) -> None:
        asked.set()
        replaced.wait(0.3)
        closed.append(connection.closed)
        raise EOFError

    monkeypatch.setattr("gpu_agents.rewards.pool._request_score", read_late)
    monkeypatch.setattr(pool, "_start_child", start_next)
    given_up = asyncio.create_task(pool.score(of("hang")))
    await asyncio.to_thread(asked.wait)
    given_up.cancel()
    await asyncio.wait([given_up])
    assert given_up.cancelled() and replaced.is_set() and closed == [False]


async def test_a_text_that_unfolds_beyond_the_memory_of_a_child_is_an_error_of_that_text(
    pool: ChildPool,
) -> None:
    with pytest.raises(VerifierFailed, match="MemoryError"):
        await pool.score(of("eat"))
    assert (await pool.score(of("fine"))).value == 0.5


def of(text: str) -> Completion:
    return Completion(prompt="", text=text, answer="4", finish_reason="stop")


class Scripted:
    """A scorer that raises what it is given, in order; None is a score."""

    def __init__(self, *ends: Exception | None, score: Score | None = None) -> None:
        self._ends = list(ends)
        self._score = score or Score(value=1.0)

    async def start(self) -> None: ...

    async def score(self, completion: Completion) -> Score:
        end = self._ends.pop(0) if self._ends else None
        if end is not None:
            raise end
        return self._score

    async def close(self) -> None: ...


async def test_whatever_a_scorer_raises_is_a_counted_error_and_no_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpu_agents.rewards.service.PAUSE_SECONDS", 0.0)
    async with Served(Scripted(ZeroDivisionError("ours"), ZeroDivisionError("ours"))) as served:
        reply = await served.score("x")
        assert (reply.status, reply.score, reply.kind) == ("error", None, "verifier_error")
        assert reply.message == "ZeroDivisionError: ours"
        assert served.service.counts.failed == {"verifier_error": 1}
        assert served.service.counts.retried == {"VerifierFailed": 1}


async def test_scores_between_errors_keep_a_run_going() -> None:
    ends = [*[ScoringError("no")] * 4, None] * 2
    async with Served(Scripted(*ends), ErrorBudget(0.9)) as served:
        for _ in ends:
            await served.score("x")
        assert served.service.counts.failed == {"verifier_error": 8}
        assert not served.service.over_budget.is_set()


async def test_the_parts_of_scores_are_summed_up_with_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    parts = Score(value=1.0, parts={"math": 1.0, "format": 0.25})
    async with Served(Scripted(score=parts)) as served:
        for _ in range(2):
            await served.score("x")
        assert served.service.state()["parts"] == {
            "math": {"scored": 2, "mean": 1.0},
            "format": {"scored": 2, "mean": 0.25},
        }
        with caplog.at_level("INFO", logger="gpu_agents.rewards.service"):
            served.service.log_parts()
        said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("part ")]
        assert said == ["part math: mean 1 over 2 completions", "part format: mean 0.25 over 2 completions"]


def test_parts_whose_names_a_function_makes_up_are_bounded() -> None:
    counts = ScoreCounts()
    for number in range(1000):
        counts.note_part(str(number), 1.0)
    assert len(counts.parts) == KEPT_PARTS


class BrokenBoxes:
    """In place of the node's sandboxes: the first `times` runs break."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def run(self, program: Program, limits: Limits, **_: Any) -> SandboxResult:
        self.left -= 1
        if self.left >= 0:
            raise SandboxFailed("bubblewrap made no sandbox")
        return SandboxResult(tests=[TestResult(status=Status.OK, value=b'"42"')])


@pytest.mark.parametrize(("times", "retried", "failed"), [(2, 2, {}), (3, 2, {"sandbox_error": 1})])
async def test_code_whose_sandbox_fails_is_tried_again_and_then_refused_and_counted(
    times: int, retried: int, failed: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_agents.rewards.service.PAUSE_SECONDS", 0.0)
    async with Served(Scripted()) as served:
        served.service._sandboxes = BrokenBoxes(times)  # type: ignore[assignment]
        served.service.budget = ErrorBudget(0.01)
        request = ExecuteRequest(code="6 * 7")
        if failed:
            for _ in range(4):
                served.service.budget.note(error=True, now=time.monotonic())
            with pytest.raises(RpcError, match="sandbox_error: bubblewrap made no sandbox"):
                await served.peer.call("execute", request, ExecuteReply)
        else:
            assert (await served.peer.call("execute", request, ExecuteReply)).value == "42"
        assert served.service.counts.retried == {"SandboxFailed": retried}
        assert served.service.counts.failed == failed
        assert served.service.over_budget.is_set() == bool(failed), "the fifth in a row"


class BrokenAtFirst:
    """A scorer whose sandbox fails `times` times."""

    def __init__(self, times: int) -> None:
        self.left = times

    async def start(self) -> None: ...

    async def score(self, completion: Completion) -> Score:
        self.left -= 1
        if self.left >= 0:
            raise SandboxFailed("bubblewrap made no sandbox")
        return Score(value=1.0, parts={"part": 0.5}, result="passed", forgeable=True)

    async def close(self) -> None: ...


async def test_a_sandbox_that_fails_is_tried_again_and_then_is_no_score(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpu_agents.rewards.service.PAUSE_SECONDS", 0.0)
    async with Served(BrokenAtFirst(2)) as served:
        reply = await served.score("x")
        assert (reply.status, reply.score, reply.parts, reply.result) == ("ok", 1.0, {"part": 0.5}, "passed")
        assert reply.forgeable and served.service.counts.forgeable == 1
        assert served.service.counts.retried == {"SandboxFailed": 2} and not served.service.counts.failed
    async with Served(BrokenAtFirst(3)) as served:
        reply = await served.score("x")
        assert (reply.status, reply.score, reply.kind) == ("error", None, "sandbox_error")
        assert served.service.counts.failed == {"sandbox_error": 1}


async def test_too_many_errors_raise_the_alarm_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_agents.rewards.service.PAUSE_SECONDS", 0.0)
    async with Served(BrokenAtFirst(10**6), ErrorBudget(0.01)) as served:
        for _ in range(4):
            await served.score("x")
        assert not served.service.over_budget.is_set()
        await served.score("x")
        assert served.service.over_budget.is_set()
        assert served.service.budget.exceeded.startswith("5 consecutive completions got no score")


async def test_an_evaluation_may_have_a_reward_of_its_own() -> None:
    both = TrainEvalScorer(training=InThisProcess(lambda c: 1.0), evaluation=InThisProcess(lambda c: 0.25))
    async with Served(both) as served:
        scores = {}
        for purpose in ("training", "evaluation"):
            request = ScoreRequest(
                prompt="", completion="c", answer="a", finish_reason="stop", purpose=purpose
            )
            scores[purpose] = (await served.peer.call("score", request, ScoreReply)).score
        assert scores == {"training": 1.0, "evaluation": 0.25}


def test_more_than_one_in_a_hundred_is_too_many_unless_the_spec_says_otherwise(tmp_path: Path) -> None:
    document: dict[str, Any] = {"name": "x", "model": {"base_model": "m"}, "dataset": {"version": "d"}}
    assert max_error_rate(job_of(document, tmp_path)) == 0.01
    document["reward"] = {"max_error_rate": 0.2}
    assert max_error_rate(job_of(document, tmp_path)) == 0.2
    tested = {**document, "kind": "reward_test", "reward_test": {"rows": 4}}
    assert max_error_rate(job_of(tested, tmp_path)) == 1.0, "a reward's test sees every error"


@pytest.mark.parametrize("reward", [{"name": "code"}, {"function": "mine@1"}], ids=["code", "function"])
async def test_a_job_that_must_run_code_ends_at_its_start_where_there_is_no_sandbox(
    reward: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "sudo sysctl -w user.max_user_namespaces=15000"
    none = Capabilities(
        user_namespace=False, seccomp=False, memory_bound="none", process_bound="none", own_uid=False,
        message="no sandbox can be made", command=command,
    )  # fmt: skip
    monkeypatch.setattr(
        "gpu_agents.rewards.sandboxes.probe_sandbox", lambda **_: ProbeResult(capabilities=none, sandbox=None)
    )
    (tmp_path / "mine.py").write_text("")
    document = {"name": "x", "model": {"base_model": "m"}, "dataset": {"version": "d"}, "reward": reward}
    job = job_of(document, tmp_path)
    sources = {"reward": str(tmp_path / "mine.py")}
    job = replace(job, attempt=msgspec.structs.replace(job.attempt, source_files=sources))
    sandboxes = Sandboxes(slots=1)
    remote = RemoteCounts()
    await asyncio.wait_for(serve(job, scorer_of(job, sandboxes, remote), sandboxes, remote), 60)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["reason"] == EndReason.CONFIG_REJECTED and command in result["message"]


def test_the_spec_says_which_reward_an_evaluation_has(tmp_path: Path) -> None:
    document = {
        "name": "x",
        "model": {"base_model": "m"},
        "dataset": {"version": "d"},
        "evaluation": {"reward": {"name": "math"}},
    }
    assert isinstance(scorer_of(job_of(document, tmp_path), Sandboxes(), RemoteCounts()), TrainEvalScorer)
    del document["evaluation"]["reward"]
    assert not isinstance(scorer_of(job_of(document, tmp_path), Sandboxes(), RemoteCounts()), TrainEvalScorer)


async def test_training_and_evaluation_may_each_have_an_uploaded_function(tmp_path: Path) -> None:
    texts = {
        name: f"def score(prompt, completion, answer):\n    return {name!r}"
        for name in ("reward", EVALUATION_REWARD)
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    document = {
        "name": "x",
        "model": {"base_model": "m"},
        "dataset": {"version": "d"},
        "reward": {"function": "a@1"},
        "evaluation": {"reward": {"function": "b@1", "options": {}}},
    }
    job = job_of(document, tmp_path)
    sources = {name: str(tmp_path / f"{name}.py") for name in texts}
    job = replace(job, attempt=msgspec.structs.replace(job.attempt, source_files=sources))
    scorer = scorer_of(job, Sandboxes(), RemoteCounts())
    assert isinstance(scorer, TrainEvalScorer)
    found = {purpose: inner._common["source"] for purpose, inner in scorer._scorers.items()}  # type: ignore[attr-defined]
    assert found == {"training": texts["reward"], "evaluation": texts[EVALUATION_REWARD]}


def job_of(document: dict[str, Any], directory: Path) -> Job:
    spec = RunSpec.model_validate(document).model_dump(mode="json")
    attempt = AttemptFile(
        run_id="r", attempt_id="a", attempt_number=1, epoch=1, spec=spec, directory=str(directory),
        model_directory="", dataset_file="",
    )  # fmt: skip
    return Job(
        attempt=attempt,
        job=JobFile(job_id="j", name="reward", kind=JobKind.REWARD),
        directory=directory,
        began_at=0.0,
    )
