"""The test bench of rewards: what is tried, how it is scored, and what the report makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_agents.reward_test.adversarial import PROBES, adversarial_completions
from gpu_agents.reward_test.report import build_report
from gpu_agents.reward_test.scoring import check_determinism, stored_samples
from gpu_agents.reward_test.types import MODEL, Sample, ScoredSample, ScoreResult
from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.reward import Completion, ScoringError
from gpu_agents.rewards.service import InThisProcess, RewardService
from oolong.contracts.rollout import EvaluationPrompt
from oolong.system.rpc import RpcClient

ROWS = [
    EvaluationPrompt(index=n, prompt_token_ids=[1], prompt=f"what is {n} + 1?", answer=str(n + 1))
    for n in range(4)
]
Score = Callable[[Completion], float]


async def tried(reward: Score, samples: list[Sample] | None = None) -> dict[str, Any]:
    """The report on a reward that runs behind a real reward service."""
    service = RewardService(InThisProcess(reward), token="t")
    port = await service.rpc.start("127.0.0.1", 0)
    peer = RpcClient("the reward service", f"http://127.0.0.1:{port}", "t", connect_seconds=60)
    try:
        chosen = adversarial_completions(list(PROBES), ROWS) if samples is None else samples
        scored = await check_determinism(chosen, peer, timeout_seconds=60.0, done=lambda _: None)
    finally:
        await peer.close()
        await service.rpc.close()
    return build_report(scored, rows=len(ROWS), success_score=1.0, timeout_seconds=60.0, max_error_rate=0.01)


def sampled(*completions: str, row: int = 0) -> list[Sample]:
    answer = ROWS[row].answer
    return [Sample(row=row, source=MODEL, prompt="p", answer=answer, completion=text) for text in completions]


def codes(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(reason["level"], reason["code"]) for reason in document["reasons"]}


async def test_exact_reward_is_green() -> None:
    document = await tried(build_reward("exact_match", {"extract": "whole"}))
    assert (document["result"], document["reasons"]) == ("green", [])
    assert document["probes"]["leaked_answer"]["success_frac"] == 1.0
    assert document["probes"]["all_answers"]["success_frac"] == 0.0
    assert document["calls"] == 2 * 6 * len(ROWS)
    assert set(document["latency_seconds"]) == {"p50", "p95", "max"}


async def test_substring_reward_is_red_for_the_all_answers_probe() -> None:
    document = await tried(lambda completion: float(completion.answer in completion.text))
    assert document["result"] == "red"
    assert ("red", "probe_all_answers") in codes(document)
    assert "'1 2 3 4'" in str(document["probes"]["all_answers"]["example"])


async def test_length_reward_is_red_and_names_the_probe() -> None:
    document = await tried(lambda completion: min(len(completion.text) / 1000, 1.0))
    assert ("red", "probe_longest") in codes(document)
    assert ("note", "bare_answer_is_not_enough") in codes(document)


async def test_probe_scoring_above_the_model_is_amber() -> None:
    samples = [*sampled("a", "b"), Sample(row=0, source="empty", prompt="p", answer="1", completion="")]
    document = await tried(lambda completion: 0.0 if completion.text else 0.5, samples)
    assert (document["result"], ("amber", "probe_empty") in codes(document)) == ("amber", True)


async def test_non_deterministic_reward_is_red() -> None:
    calls = iter(range(1000))
    document = await tried(lambda completion: float(next(calls)) / 1e6)
    assert ("red", "not_deterministic") in codes(document)
    example = document["determinism"]["examples"][0]
    assert example["scores"][0] != example["scores"][1]


async def test_exceptions_are_counted_with_their_messages() -> None:
    def fails_on_nothing(completion: Completion) -> float:
        if not completion.text:
            raise ScoringError("there is no text")
        return float(len(completion.text) % 2)

    document = await tried(fails_on_nothing, [*sampled("", "a", "bb")])
    assert ("red", "exceptions") in codes(document)
    assert document["exceptions"]["count"] == 2, "each completion is scored twice"
    assert document["exceptions"]["examples"][0]["error"] == "there is no text"
    assert document["range"]["scored"] == 2, "an error is no score of 0"


async def test_constant_reward_is_red() -> None:
    document = await tried(lambda completion: 0.3, sampled("a", "b"))
    assert ("red", "constant") in codes(document)


async def test_zero_variance_groups_are_amber() -> None:
    samples = [sample for row in range(4) for sample in sampled("x", "y", row=row)] + sampled("1")
    document = await tried(build_reward("exact_match", {"extract": "whole"}), samples)
    assert document["zero_variance_frac"] == 0.75
    equal = [sample for row in range(4) for sample in sampled("x", "y", row=row)] + sampled("1", row=3)[:0]
    equal += [Sample(row=9, source=MODEL, prompt="p", answer="1", completion="1")]
    document = await tried(build_reward("exact_match", {"extract": "whole"}), equal)
    assert (document["zero_variance_frac"], document["result"]) == (1.0, "amber")


def test_a_slow_reward_is_amber() -> None:
    slow = ScoreResult(score=1.0, seconds=4.0)
    quick = ScoreResult(score=0.0, seconds=0.1)
    scored = [
        ScoredSample(sample=sample, first=outcome, second=outcome)
        for sample, outcome in zip(sampled("a", "b"), (slow, quick), strict=True)
    ]
    document = build_report(scored, rows=1, success_score=1.0, timeout_seconds=5.0, max_error_rate=0.01)
    assert codes(document) == {("amber", "slow")}


def test_stored_completions_use_the_rows_prompt_or_their_own(tmp_path: Path) -> None:
    given = [
        {"row": 2, "completion": "3"},
        {"group": 7, "prompt": "q", "answer": "", "completion": "x<|end|>", "special_tokens": True},
        {"group": 7, "prompt": "q", "answer": "", "completion": "y"},
    ]
    file = tmp_path / "samples.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in given))
    rows = {row.index: row for row in ROWS}
    found = stored_samples(file, rows, without_specials=lambda text: text.replace("<|end|>", ""))
    assert [(s.row, s.prompt, s.answer, s.completion) for s in found] == [
        (2, "what is 2 + 1?", "3", "3"), (-8, "q", "", "x"), (-8, "q", "", "y"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", list(PROBES))
def test_every_probe_belongs_to_its_row(name: str) -> None:
    samples = adversarial_completions([name], ROWS)
    assert [(sample.row, sample.answer) for sample in samples] == [(row.index, row.answer) for row in ROWS]
