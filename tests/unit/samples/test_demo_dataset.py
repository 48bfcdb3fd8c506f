from __future__ import annotations

import json
from pathlib import Path

from oolong.samples.demo_dataset import LetterSum, rows, write_dataset

SMALL = LetterSum(rows={"sft": 3000, "validation": 200, "train": 800, "eval": 300})


def test_dataset_is_deterministic_per_seed(tmp_path: Path) -> None:
    one, two = write_dataset(tmp_path / "1", SMALL), write_dataset(tmp_path / "2", SMALL)
    assert one.read_bytes() == two.read_bytes()
    other = write_dataset(tmp_path / "3", LetterSum(seed=2, rows=SMALL.rows))
    assert one.read_bytes() != other.read_bytes()


def test_splits_share_no_question() -> None:
    questions: dict[str, set[str]] = {}
    for row in rows(SMALL):
        questions.setdefault(row["split"], set()).add(row["question"])
    splits = list(questions.values())
    assert sum(len(seen) for seen in splits) == len(set().union(*splits))


def test_only_demonstrations_repeat_a_question() -> None:
    for split in ("validation", "train", "eval"):
        found = [row["question"] for row in rows(SMALL) if row["split"] == split]
        assert len(set(found)) == len(found) == SMALL.rows[split]


def test_answers_are_correct_and_only_sft_solutions_are_noisy() -> None:
    wrong = {"sft": 0, "validation": 0, "train": 0, "eval": 0}
    for row in rows(SMALL):
        digits = [int(word[1:]) for word in row["question"].split()]
        assert row["answer"] == str(sum(digits)) and 3 <= len(digits) <= 12
        assert row["solution"].startswith(f"a{digits[0]}=") and row["solution"].endswith("}")
        wrong[row["split"]] += not row["solution"].endswith(f"\\boxed{{{row['answer']}}}")
    assert 0.3 < wrong["sft"] / 3000 < 0.6
    assert wrong["validation"] == wrong["train"] == wrong["eval"] == 0


def test_noisy_solution_continues_from_its_wrong_sum() -> None:
    for row in rows(LetterSum(noise=1.0, rows={"sft": 50})):
        steps = [step.partition("=") for step in row["solution"].split()[:-1]]
        totals = [int(total) for _, _, total in steps]
        for before, (term, _, _), total in zip([0, *totals], steps, totals, strict=False):
            assert 0 <= abs(total - before - int(term[1:])) <= 3


def test_every_line_is_one_json_object(tmp_path: Path) -> None:
    lines = write_dataset(tmp_path / "set.jsonl", SMALL).read_text().splitlines()
    assert len(lines) == sum(SMALL.rows.values())
    assert set(json.loads(lines[0])) == {"question", "answer", "solution", "split"}
