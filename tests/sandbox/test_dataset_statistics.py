"""Tokens are counted in the real sandbox: the very process that a measurement starts."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer, models, pre_tokenizers

from control_plane.assets.background import JOB_FILE
from control_plane.assets.background.token_statistics.job import Measured, MeasureJob, read_result
from tests.sandbox.conftest import run_reader


def measure(folder: Path, checkout: Path, tokenizer: bytes) -> Measured:
    with tarfile.open(folder / "model.tar", "w") as tar:
        info = tarfile.TarInfo("tokenizer.json")
        info.size = len(tokenizer)
        tar.addfile(info, io.BytesIO(tokenizer))
    row: dict[str, Any] = {"row": 0, "split": "train", "answer": "1", "completion": "a"}
    lines = [json.dumps({**row, "messages": [{"role": "user", "content": "a " * n}]}) for n in range(1, 101)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    job = MeasureJob(rows=str(folder / "rows.jsonl"), model=str(folder / "model.tar"))
    (folder / JOB_FILE).write_bytes(msgspec.json.encode(job))
    run_reader("control_plane.assets.background.token_statistics", folder, checkout)
    result = read_result(folder)
    assert result is not None
    return result


def test_lengths_come_out_of_the_sandbox(tmp_path: Path, checkout: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[attr-defined]
    found = measure(tmp_path, checkout, tokenizer.to_str().encode())
    assert (found.isolation, found.refused, found.vocabulary) == ("sandbox", "", 2)
    train = found.prompts["train"]
    assert (train.rows, train.p50, train.p95, train.largest) == (100, 50, 95, 100)
    assert found.completions["train"].largest == 1


def test_a_tokenizer_that_is_none_is_refused(tmp_path: Path, checkout: Path) -> None:
    assert "cannot be loaded" in measure(tmp_path, checkout, b"[]").refused
