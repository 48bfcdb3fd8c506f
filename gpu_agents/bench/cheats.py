"""Completions that deserve nothing, for one row each. A reward that pays for one of them will be paid in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpu_agents.bench.nouns import Sample
from oolong.contracts.rollout import EvaluationPrompt

REPEATS = 64
LONG_CHARACTERS = 4000
LEAKED_ANSWER = "leaked_answer"  # the control: it is right, so a low score says that the form matters too


def empty(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return ""


def repeated(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return "the answer is " * REPEATS


def echo(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return row.prompt


def leaked_answer(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return row.answer


def all_answers(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    """Every answer of the test, in one order for all rows: one of them is right."""
    return " ".join(answers)


def longest(row: EvaluationPrompt, answers: Sequence[str]) -> str:
    return ("Let me think about it once more, step by step. " * LONG_CHARACTERS)[:LONG_CHARACTERS]


CHEATS: dict[str, Callable[[EvaluationPrompt, Sequence[str]], str]] = {
    "empty": empty,
    "repeated": repeated,
    "echo": echo,
    LEAKED_ANSWER: leaked_answer,
    "all_answers": all_answers,
    "longest": longest,
}


def cheats_of(names: Sequence[str], rows: Sequence[EvaluationPrompt]) -> list[Sample]:
    answers = list(dict.fromkeys(row.answer for row in rows))
    return [
        Sample(
            row=row.index,
            source=name,
            prompt=row.prompt,
            answer=row.answer,
            completion=CHEATS[name](row, answers),
            finish_reason="length" if name == "longest" else "stop",
        )
        for name in names
        if name != "all_answers" or len(answers) > 1  # with one answer it would be the right one
        for row in rows
    ]
