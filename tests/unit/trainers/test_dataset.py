from __future__ import annotations

from pathlib import Path

import pytest

from trainers.dataset import InvalidDataset, read_rows


def test_missing_split_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"row":0,"split":"train","messages":[],"answer":""}\n')
    with pytest.raises(InvalidDataset, match="no rows in split 'sft'"):
        read_rows(tmp_path / "rows.jsonl", split="sft")


def test_invalid_line_is_named_by_number(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"row":0,"split":"sft","messages":[],"answer":""}\n{"row":\n')
    with pytest.raises(InvalidDataset, match="line 1"):
        read_rows(tmp_path / "rows.jsonl", split="sft")
