"""Preference pairs about the letter-sum task: a right solution, and one whose running sums went wrong."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oolong.samples.demo_dataset import LetterSum, rows, solution_text

PAIR_MAPPING = {
    "prompt_column": "question",
    "chosen_column": "chosen",
    "rejected_column": "rejected",
    "split_column": "split",
    "default_split": "train",
}
NOISE = 0.3  # chance that a running sum of a rejected solution is wrong; drawn again until one is


@dataclass(frozen=True)
class PreferencePairs:
    """What the pairs are made from; the same values give the same bytes."""

    seed: int = 1
    rows: dict[str, int] = field(default_factory=lambda: {"train": 1000, "eval": 200})


def pairs(made_from: PreferencePairs) -> Iterator[dict[str, str]]:
    """The rows, split by split, about the questions that the dataset has in the same split."""
    rng = random.Random(f"preference-pairs/{made_from.seed}")
    for row in rows(LetterSum(seed=made_from.seed, rows=made_from.rows)):
        digits = [int(word[1:]) for word in row["question"].split()]
        right = solution_text(digits)
        wrong = right
        while wrong == right:
            wrong = solution_text(digits, noise=NOISE, rng=rng)
        yield {"question": row["question"], "chosen": right, "rejected": wrong, "split": row["split"]}


def write_pairs(path: Path, made_from: PreferencePairs | None = None) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for row in pairs(made_from or PreferencePairs()):
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return path
