"""The examples of docs/how-to/remote-rewards.md, in the reward job as an agent starts it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_agents.job import Job
from gpu_agents.rewards.__main__ import scorer_of
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.reward import Completion, InvalidOptions, Score
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec import RunSpec
from tests.support.pages import block
from tests.support.score_server import ScoreServer, judgement

PAGE = Path(__file__).resolve().parents[4] / "docs" / "how-to" / "remote-rewards.md"
FOUR = Completion(prompt="2+2", text="it is 4", answer="4", finish_reason="stop")


@pytest.fixture
def service() -> Iterator[str]:
    """The page's service, on a free port."""
    names: dict[str, Any] = {"__name__": "service"}
    exec(block(PAGE, "python"), names)
    handler = type("Quiet", (names["Handler"],), {"log_message": lambda *_: None})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.01), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def job_of(title: str, origin: str, *, path: str, origins: list[str] | None = None) -> Job:
    """A reward job with a YAML example of the page, whose service is at the origin."""
    reward = yaml.safe_load(block(PAGE, "yaml", title))["reward"]
    reward["options"]["url"] = origin + path
    spec = RunSpec.model_validate(
        {"name": "x", "model": {"base_model": "m"}, "dataset": {"version": "d"}, "reward": reward}
    )
    attempt = AttemptFile(
        run_id="r", attempt_id="a", attempt_number=1, epoch=1, spec=spec.model_dump(mode="json"), directory="",
        model_directory="", dataset_file="", reward_origins=[origin] if origins is None else origins,
    )  # fmt: skip
    return Job(
        attempt=attempt,
        job=JobFile(job_id="j", name="reward", kind=JobKind.REWARD),
        directory=Path(),
        began_at=0.0,
    )


async def score_of(job: Job, completion: Completion, remote: RemoteCounts) -> Score:
    scorer = scorer_of(job, Sandboxes(), remote)
    await scorer.start()
    try:
        return await scorer.score(completion)
    finally:
        await scorer.close()


async def test_the_service_of_the_page_scores_completions(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARD_SECRET_JUDGE_KEY", "k3y-of-the-judge")
    remote = RemoteCounts()
    score = await score_of(job_of("http.yaml", service, path="/score"), FOUR, remote)
    assert score == Score(value=1.0, parts={"length": 7.0}) and remote.requests == 1


async def test_the_judge_of_the_page_is_asked_with_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_SECRET_JUDGE_KEY", "k3y-of-the-judge")
    with ScoreServer(lambda seen: judgement('{"reason": "right", "score": 9}')).serving() as server:
        job = job_of("judge.yaml", server.origin, path="/v1/chat/completions")
        score = await score_of(job, FOUR, RemoteCounts())
    assert (score.value, score.text) == (0.9, '{"reason": "right", "score": 9}')
    (seen,) = server.seen
    assert seen.headers["Authorization"] == "Bearer k3y-of-the-judge"
    assert seen.document["messages"][1]["content"].endswith('{"reason": "one sentence", "score": 0 to 10}\n')


def test_a_job_whose_origin_is_no_longer_listed_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARD_SECRET_JUDGE_KEY", "k3y-of-the-judge")
    job = job_of("http.yaml", "http://127.0.0.1:9", path="/score", origins=["https://other.test"])
    with pytest.raises(InvalidOptions, match="OOLONG_REWARD_ORIGINS"):
        scorer_of(job, Sandboxes(), RemoteCounts())
