"""The reward job as an agent starts it: the example of docs/how-to/reward.md, scored over its door."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.contracts.rollout import ExecuteReply, ExecuteRequest, ScoreReply, ScoreRequest
from oolong.contracts.run_spec import RunSpec
from oolong.sandbox import ProbeResult
from oolong.system.rpc import RpcClient
from tests.support.isolation import require_isolation
from tests.support.pages import block
from tests.support.ports import reserve_port

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "reward.md"


def example() -> str:
    return block(PAGE, "python")


class RewardJob:
    """One reward process with the given spec section."""

    def __init__(self, directory: Path, reward: dict[str, Any], source: str = "") -> None:
        self.directory = directory / "job"
        self.directory.mkdir()
        (directory / "reward.py").write_text(source)
        self.url = f"http://127.0.0.1:{reserve_port()}"
        spec = RunSpec.model_validate(
            {"name": "x", "model": {"base_model": "m"}, "dataset": {"version": "d"}, "reward": reward}
        )
        attempt = AttemptFile(
            run_id="r", attempt_id="a", attempt_number=1, epoch=1, spec=spec.model_dump(mode="json"),
            directory=str(directory), model_directory="", dataset_file="", reward_url=self.url, token="t",
            source_files={"reward": str(directory / "reward.py")},
        )  # fmt: skip
        job = JobFile(job_id="j", name="reward", kind=JobKind.REWARD)
        (directory / "attempt.json").write_bytes(msgspec.json.encode(attempt))
        (self.directory / "job.json").write_bytes(msgspec.json.encode(job))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpu_agents.rewards", "--attempt", str(directory / "attempt.json"),
             "--job", str(self.directory)],
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.environ["PATH"]},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.peer = RpcClient("reward", self.url, "t", connect_seconds=120)

    async def score(self, completion: str, answer: str) -> ScoreReply:
        request = ScoreRequest(prompt="", completion=completion, answer=answer, finish_reason="stop")
        return await self.peer.call("score", request, ScoreReply)

    def result(self) -> dict[str, Any]:
        self.process.wait()
        return json.loads((self.directory / "result.json").read_text())

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "outbox" / "main-0.jsonl").open()]

    async def close(self) -> None:
        await self.peer.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
async def example_job(tmp_path: Path, probe_result: ProbeResult) -> AsyncIterator[RewardJob]:
    require_isolation(probe_result.capabilities)
    job = RewardJob(
        tmp_path, {"function": "closeness@1", "options": {"half_at": 5.0}, "timeout_seconds": 60}, example()
    )
    yield job
    await job.close()


async def test_the_example_of_the_how_to_scores_and_the_job_tells_what_it_did(example_job: RewardJob) -> None:
    right = await example_job.score("I count 12", "12")
    assert (right.score, right.parts) == (1.0, {"closeness": 1.0, "brief": 1.0})
    near = await example_job.score("maybe 7", "12")
    assert near.score == pytest.approx(0.9 * 0.5 + 0.1)
    wrong = await example_job.score("a text without one", "twelve")
    assert wrong.score == 0.0
    no_score = await example_job.score("7", "twelve")
    assert (no_score.status, no_score.kind) == ("error", "verifier_error")
    assert "could not convert string to float" in no_score.message
    cell = await example_job.peer.call(
        "execute", ExecuteRequest(code="6 * 7", wall_seconds=60.0), ExecuteReply
    )
    assert cell.value == "42"

    example_job.process.send_signal(signal.SIGTERM)
    assert example_job.result()["reason"] == EndReason.STOPPED_BY_USER
    lines = example_job.lines()
    document = [line["value"] for line in lines if line["type"] == "state"][-1]
    assert document["capabilities"]["runs_code"] is True
    assert document["failed"] == {"verifier_error": 1} and document["scored"] == 3
    points = [line["values"] for line in lines if line["type"] == "points"][
        -1
    ]  # others came on a slow machine
    assert (
        points["reward/scored"] == 3 and points["reward/verifier_errors"] == 1 and points["sandbox/runs"] == 6
    )
    assert 0 < points["reward/latency_p50_seconds"] <= points["reward/latency_p95_seconds"]
    summary = next(line for line in lines if line["type"] == "summary")
    assert (summary["name"], summary["value"]["executed"]) == ("reward", 1)


async def test_a_function_that_cannot_score_ends_the_run_with_the_reason(
    tmp_path: Path, probe_result: ProbeResult
) -> None:
    require_isolation(probe_result.capabilities)
    source = "def score(prompt, completion, answer):\n    return {}['missing']"
    job = RewardJob(tmp_path, {"function": "broken@1"}, source)
    try:
        for _ in range(5):
            assert (await job.score("x", "y")).status == "error"
        result = job.result()
        assert result["reason"] == EndReason.REWARD_ERROR_RATE
        assert (
            "5 consecutive completions got no score" in result["message"] and "KeyError" in result["message"]
        )
    finally:
        await job.close()


async def test_a_reward_that_does_not_exist_is_refused_before_it_serves(tmp_path: Path) -> None:
    job = RewardJob(tmp_path, {"name": "exact_match", "options": {"extract": "half"}})
    try:
        result = job.result()
        assert (result["reason"], "options/extract: must be one of" in result["message"]) == (
            EndReason.CONFIG_REJECTED,
            True,
        )
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", int(job.url.rpartition(":")[2])), timeout=30)
    finally:
        await job.close()
