"""How fast rewards are given: tests of code in the sandbox, pairs of mathematical answers in the killable children.

`python -m tests.bench.rewards_speed` prints both as JSON. They are measured where the reward service calls them, by
`build_scorer`, with one sandbox at a time per processor and completions in flight as a rollout worker sends them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from typing import Any

from gpu_agents.rewards.registry import CHILDREN, ScorerContext, build_scorer
from gpu_agents.rewards.reward import Completion, Scorer
from gpu_agents.rewards.sandboxes import Sandboxes
from oolong.sandbox import probe_sandbox

SOLUTION = "```python\nn = int(input())\nprint(sum(int(word) for word in input().split()) % (n + 1))\n```"
TESTS_OF_A_ROW = 20  # as many as rows of LiveCodeBench have, about
COMPLETIONS = 60
IN_FLIGHT = 16
PAIRS = 2_000
PATIENCE_SECONDS = (
    60.0  # with one score: a machine that stands still for a while spoils the speed, not the scores
)
# (what the completion ends with, the row's answer): of ten, seven plain numbers, two of another form, one symbolic.
ANSWERS: Sequence[tuple[str, str]] = (
    ("\\boxed{42}", "42"), ("\\boxed{-7}", "-7"), ("\\boxed{1234}", "1235"), ("\\boxed{0}", "0"),
    ("\\boxed{96}", "96"), ("\\boxed{3}", "5"), ("\\boxed{17}", "17"),
    ("\\boxed{\\frac{1}{2}}", "0.5"), ("\\boxed{2\\sqrt{3}}", "\\sqrt{12}"), ("\\boxed{(x+1)^2}", "x^2+2x+1"),
)  # fmt: skip


def rows_of_code(completions: int) -> list[Completion]:
    tests = []
    for number in range(TESTS_OF_A_ROW):
        values = [(number * 37 + place * 11) % 101 for place in range(12)]
        given = f"{number + 12}\n{' '.join(map(str, values))}\n"
        tests.append({"input": given, "output": f"{sum(values) % (number + 13)}\n"})
    answer = json.dumps({"tests": tests})
    return [
        Completion(prompt="", text=SOLUTION, answer=answer, finish_reason="stop", row=row)
        for row in range(completions)
    ]


def rows_of_math(pairs: int) -> list[Completion]:
    return [
        Completion(prompt="", text=f"So the answer is {text}", answer=answer, finish_reason="stop", row=row)
        for row in range(pairs)
        for text, answer in (ANSWERS[row % len(ANSWERS)],)
    ]


async def score_all(scorer: Scorer, rows: Sequence[Completion]) -> tuple[float, list[float]]:
    """Wall seconds, and the scores in the order of the rows; a few are scored first, uncounted."""
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one(row: Completion) -> float:
        async with places:
            return (await scorer.score(row)).value

    await asyncio.gather(*(one(row) for row in rows[: 2 * (os.cpu_count() or 1)]))
    began = time.perf_counter()
    scores = await asyncio.gather(*(one(row) for row in rows))
    return time.perf_counter() - began, scores


async def measure(*, completions: int = COMPLETIONS, pairs: int = PAIRS) -> list[dict[str, Any]]:
    probe_result = await asyncio.to_thread(probe_sandbox)
    probe_result.require()
    slots = len(os.sched_getaffinity(0))
    sandboxes = Sandboxes.of(probe_result, slots=slots)
    try:
        code = build_scorer("code", {"timeout_seconds": PATIENCE_SECONDS}, ScorerContext(sandboxes=sandboxes))
        await code.start()
        code_seconds, code_scores = await score_all(code, rows_of_code(completions))
        if set(code_scores) != {1.0}:
            raise AssertionError(f"right programs were scored {sorted(set(code_scores))}")
        math = build_scorer("math", {}, ScorerContext(sandboxes=sandboxes, timeout_seconds=PATIENCE_SECONDS))
        await math.start()
        try:
            math_seconds, math_scores = await score_all(math, rows_of_math(pairs))
        finally:
            await math.close()
    finally:
        await sandboxes.close()
    wanted = [float(place not in (2, 5)) for place in range(len(ANSWERS))]
    if math_scores[: len(ANSWERS)] != wanted[: len(math_scores)]:
        raise AssertionError(f"pairs were scored {math_scores[: len(ANSWERS)]}, not {wanted}")
    return [
        {
            "key": "sandboxed_tests_per_second", "value": completions * TESTS_OF_A_ROW / code_seconds,
            "unit": "tests/s", "baseline": None, "seeds": [],
            "settings": {
                "completions": completions, "tests_of_a_completion": TESTS_OF_A_ROW, "sandboxes_at_a_time": slots,
                "sandboxes_per_second": completions / code_seconds, "in_flight": IN_FLIGHT,
                "as_root": os.geteuid() == 0,
            },
        },
        {
            "key": "math_pairs_per_second", "value": pairs / math_seconds, "unit": "pairs/s", "baseline": None,
            "seeds": [],
            "settings": {"pairs": pairs, "children": CHILDREN, "in_flight": IN_FLIGHT, "answers": ANSWERS},
        },
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))
