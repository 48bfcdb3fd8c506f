"""The table over batch sizes in the page on microbatches is what the program says."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bench.microbatches import by_batch_size

PAGE = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "microbatches.md"


def test_the_pages_table_is_what_the_program_prints() -> None:
    table = PAGE.read_text().partition("by_batch_size")[2].partition("A small batch")[0]
    rows = [list(row) for row in re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \|$", table, re.M)]
    assert rows == by_batch_size()
