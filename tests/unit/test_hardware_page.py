"""docs/reference/hardware.md names tests that exist, and every test for a GPU."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/reference/hardware.md").read_text()
NAMED = set(re.findall(r"`(tests/[\w/.]+)`", TABLE))


def test_every_named_test_exists() -> None:
    assert len(NAMED) > 15
    assert {name for name in NAMED if not (ROOT / name).exists()} == set()


def test_every_test_for_a_gpu_is_in_the_table() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests/gpu").glob("test_*.py")}
    assert files <= NAMED


def test_each_feature_says_what_ran_on_a_gpu() -> None:
    rows = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("| ")][2:]
    said = re.compile(r"not written|not run(: `tests/gpu/[\w.]+`)?|\d{4}-\d{2}-\d{2}, .+")
    assert [row[0] for row in rows if len(row) != 3 or not said.fullmatch(row[2])] == []
