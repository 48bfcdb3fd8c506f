"""What a measure starts from is a model whose training came to its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.tools import local_attempt


@dataclass
class ScriptedAttempt:
    """Leaves a checkpoint and the trainer's result, as a real one does."""

    directory: Path
    reason: str
    step: int

    def start_all(self) -> None:
        (self.directory / "checkpoints" / f"step-{self.step:06d}" / "hf").mkdir(parents=True)

    def wait(self, *, timeout: float) -> dict[str, Any]:
        job = self.directory / "jobs" / "trainer-0"
        job.mkdir(parents=True)
        result = {"reason": self.reason, "message": ""}
        (job / "result.json").write_text(json.dumps(result))
        return {"trainer": result}

    def stop(self) -> None:
        pass


def test_a_warm_start_that_was_cut_off_is_none_and_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = iter([("stopped", 980), ("completed", 1250)])

    def attempt(*, directory: Path, **_others: Any) -> ScriptedAttempt:
        reason, step = next(endings)
        return ScriptedAttempt(directory, reason, step)

    monkeypatch.setattr(local_attempt, "LocalAttempt", attempt)
    files = (tmp_path, tmp_path / "tiny", tmp_path / "rows.jsonl", "python")
    with pytest.raises(RuntimeError, match=r"the warm start did not complete: .*stopped"):
        local_attempt.warm_start(*files)
    made = local_attempt.warm_start(*files)
    assert made == tmp_path / "warm-start" / "checkpoints" / "step-001250" / "hf"
    assert [file.name for file in made.parent.parent.iterdir()] == ["step-001250"]
    assert local_attempt.warm_start(*files) == made  # kept: no third attempt is there to be started
