from __future__ import annotations

from pathlib import Path

from oolong.samples.preference_pairs import PreferencePairs, pairs, write_pairs

SMALL = PreferencePairs(rows={"train": 300, "eval": 50})


def test_pairs_are_deterministic_per_seed(tmp_path: Path) -> None:
    one, two = write_pairs(tmp_path / "1", SMALL), write_pairs(tmp_path / "2", SMALL)
    assert one.read_bytes() == two.read_bytes()
    assert (
        one.read_bytes() != write_pairs(tmp_path / "3", PreferencePairs(seed=2, rows=SMALL.rows)).read_bytes()
    )


def test_the_chosen_solution_is_right_and_the_rejected_one_is_another() -> None:
    found = list(pairs(SMALL))
    assert [row["split"] for row in found] == ["train"] * 300 + ["eval"] * 50
    for row in found:
        digits = [int(word[1:]) for word in row["question"].split()]
        assert row["chosen"].endswith(f"\\boxed{{{sum(digits)}}}")
        assert (
            row["rejected"] != row["chosen"] and row["rejected"].split("=")[0] == row["chosen"].split("=")[0]
        )


def test_splits_share_no_question() -> None:
    questions = {
        split: {row["question"] for row in pairs(SMALL) if row["split"] == split} for split in SMALL.rows
    }
    assert not questions["train"] & questions["eval"]
