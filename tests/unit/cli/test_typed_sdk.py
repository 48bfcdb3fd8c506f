"""The SDK is typed for whoever imports it: mypy, strict and without our settings, checks a program of theirs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
WRONG = """from oolong.client import Client, models

def wait(client: Client) -> str:
    run: models.Checkpoint = client.runs.get(7)
    return client.runs.last_value(run.id, "reward/mean")
"""


def mypy(tmp_path: Path, program: Path) -> list[str]:
    """Its errors, as somebody else would get them: the package is found by its py.typed."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "--cache-dir",
         str(ROOT / ".mypy_cache" / "sdk"), str(program)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_a_strict_program_checks_and_a_wrong_one_does_not(tmp_path: Path) -> None:
    assert mypy(tmp_path, ROOT / "docs" / "examples" / "train_and_promote.py") == []
    (tmp_path / "wrong.py").write_text(WRONG)
    said = "\n".join(mypy(tmp_path, tmp_path / "wrong.py"))
    assert said.count("error:") == 3, said
    assert 'incompatible type "int"; expected "str"' in said
    assert 'expression has type "Run", variable has type "Checkpoint"' in said
