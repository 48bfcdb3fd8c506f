"""Adversarial completions that should score nothing. A policy would learn to produce those that score."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpu_agents.reward_test.types import Sample
from oolong.contracts.rollout import EvaluationPrompt

REPEATS = 64
LONG_CHARACTERS = 4000
LEAKED_ANSWER = (
    "leaked_answer"  # the control: it is correct, so a low score means that the reward also checks the form
)


def empty(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return ""


def repeated(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return "the answer is " * REPEATS


def echo(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return row.prompt


def leaked_answer(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return row.answer


def all_answers(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    """All answers of the test, in the same order for every row: one of them is correct."""
    return " ".join(answers)


def longest(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return ("Let me think about it once more, step by step. " * LONG_CHARACTERS)[:LONG_CHARACTERS]


PROBES: dict[str, Callable[[EvaluationPrompt, Sequence[str]], str]] = {
    "empty": empty,
    "repeated": repeated,
    "echo": echo,
    LEAKED_ANSWER: leaked_answer,
    "all_answers": all_answers,
    "longest": longest,
}


def adversarial_completions(names: Sequence[str], rows: Sequence[EvaluationPrompt]) -> list[Sample]:
    answers = list(dict.fromkeys(row.answer for row in rows))
    return [
        Sample(
            row=row.index,
            source=name,
            prompt=row.prompt,
            answer=row.answer,
            completion=PROBES[name](row, answers),
            finish_reason="length" if name == "longest" else "stop",
        )
        for name in names
        if name != "all_answers" or len(answers) > 1  # a single answer would be the correct one
        for row in rows
    ]
