"""The letter-sum dataset: a task that a tiny model can learn on a laptop, with a skill to show and noise to remove.

A question lists k digits tagged by letters, `a5 b7 c9`; the solution is their running sum and a box:
`a5=5 b7=12 c9=21 \\boxed{21}`. The letters make "which digit is next" a look-up that a two-layer model learns
quickly. k = 3 + a geometric number of further digits, so solutions are long-tailed.

The demonstrations of the `sft` split are noisy: each running sum is wrong with probability q, and the solution
continues from the wrong sum. A model warmed up on them knows the task (its first choice is right) yet samples
with that noise; reinforcement learning against `answer`, which is always right, removes it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SMALLEST_COUNT = 3

MAPPING = {
    "prompt_column": "question",
    "answer_column": "answer",
    "completion_column": "solution",
    "split_column": "split",
    "default_split": "train",
    "template": "{question}",
    "system": "",
}


@dataclass(frozen=True)
class LetterSum:
    """What the dataset is made from; the same values give the same bytes."""

    seed: int = 1
    largest_count: int = 12  # K: digits in the longest question
    continue_probability: float = 0.70  # c: chance of one digit more, after the third
    noise: float = 0.12  # q: chance that a running sum of a demonstration is wrong
    rows: dict[str, int] = field(
        default_factory=lambda: {"sft": 20_000, "validation": 256, "train": 4_000, "eval": 512}
    )


def questions(task: LetterSum, rng: random.Random) -> Iterator[list[int]]:
    """Endless digits of questions, shortest possible three, longest `largest_count`."""
    while True:
        count = SMALLEST_COUNT
        while count < task.largest_count and rng.random() < task.continue_probability:
            count += 1
        yield [rng.randrange(10) for _ in range(count)]


def question_text(digits: list[int]) -> str:
    return " ".join(f"{letter}{digit}" for letter, digit in zip(string.ascii_lowercase, digits, strict=False))


def solution_text(digits: list[int], *, noise: float = 0.0, rng: random.Random | None = None) -> str:
    """The worked solution; with `noise`, each running sum is off by 1 to 3 with that probability."""
    total = 0
    steps = []
    for letter, digit in zip(string.ascii_lowercase, digits, strict=False):
        total += digit
        if noise and rng is not None and rng.random() < noise:
            total = max(0, total + rng.choice((-3, -2, -1, 1, 2, 3)))
        steps.append(f"{letter}{digit}={total}")
    return " ".join(steps) + f" \\boxed{{{total}}}"


# Hundredths of all possible questions that belong to a split. A question's split follows from its text alone,
# so splits are disjoint whatever their sizes and seeds.
_SHARES = {"sft": 50, "validation": 10, "train": 25, "eval": 15}


def split_of(question: str) -> str:
    draw = int.from_bytes(hashlib.sha256(question.encode()).digest()[:8], "big") % 100
    for split, share in _SHARES.items():
        if draw < share:
            return split
        draw -= share
    raise AssertionError("the shares add up to 100")


def rows(task: LetterSum) -> Iterator[dict[str, str]]:
    """The dataset's rows, split by split. Only `sft` may show a question twice, each time with its own noise.

    As there are few short questions, the other splits have more long ones than chance would give: they are harder
    than the demonstrations, and leave reinforcement learning more to do.
    """
    for split, wanted in task.rows.items():
        rng = random.Random(f"letter-sum/{task.seed}/{split}")
        seen: set[str] = set()
        for digits in questions(task, rng):
            if wanted == 0:
                break
            question = question_text(digits)
            if split_of(question) != split or (split != "sft" and question in seen):
                continue
            seen.add(question)
            wanted -= 1
            yield {
                "question": question,
                "answer": str(sum(digits)),
                "solution": solution_text(digits, noise=task.noise if split == "sft" else 0.0, rng=rng),
                "split": split,
            }


def write_dataset(path: Path, task: LetterSum | None = None) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for row in rows(task or LetterSum()):
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the letter-sum dataset as JSON lines.")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    parser.add_argument("--seed", type=int, default=LetterSum.seed)
    parser.add_argument("--largest-count", type=int, default=LetterSum.largest_count)
    parser.add_argument("--continue-probability", type=float, default=LetterSum.continue_probability)
    parser.add_argument("--noise", type=float, default=LetterSum.noise)
    arguments = parser.parse_args()
    write_dataset(
        arguments.out,
        LetterSum(
            seed=arguments.seed,
            largest_count=arguments.largest_count,
            continue_probability=arguments.continue_probability,
            noise=arguments.noise,
        ),
    )


if __name__ == "__main__":
    main()
