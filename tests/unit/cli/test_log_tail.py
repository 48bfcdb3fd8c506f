from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oolong.cli.logs import TAIL_BYTES, print_logs
from oolong.client import Client

PART_BYTES = 1000  # less than a response holds, so that a file comes in several parts


class Runs:
    def __init__(self, content: str) -> None:
        self.content = content.encode()

    def log_files(self, run_id: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(job="job_1", name="trainer", incarnation=0, bytes=len(self.content))]

    def log_part(self, run_id: str, file: Any, *, offset: int = 0) -> SimpleNamespace:
        part = self.content[offset : offset + PART_BYTES]
        return SimpleNamespace(text=part.decode(), next_offset=offset + len(part))


def printed(content: str, tail: int | None, capsys: pytest.CaptureFixture[str]) -> list[str]:
    client = cast(Client, SimpleNamespace(runs=Runs(content)))
    print_logs(client, "run_1", job="trainer", tail_lines=tail)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("length", [5, 80, TAIL_BYTES])
def test_tail_prints_whole_last_lines(length: int, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{number:>{length}}" for number in range(12)]
    content = "\n".join(lines) + end
    assert printed(content, 3, capsys) == lines[-3:]
    assert printed(content, 100, capsys) == lines
    assert printed(content, None, capsys) == lines
    assert printed(content, 0, capsys) == []


def test_tail_of_an_empty_file_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed("", 3, capsys) == []
