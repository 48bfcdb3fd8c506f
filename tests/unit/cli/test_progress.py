"""What a command shows of a transfer on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from oolong.cli import output
from oolong.client.models import DatasetValidation


def checked(rows: int, *, state: str = "RUNNING") -> DatasetValidation:
    return DatasetValidation.model_construct(
        state=state, rows_seen=rows, bytes_seen=8_400_000, bytes=30_300_000
    )


def upload_and_check(*, quiet: bool = False) -> None:
    with output.dataset_progress("rows.jsonl", quiet=quiet) as progress:
        progress["progress"](8_400_000, 30_300_000)
        progress["checking"](checked(0, state="QUEUED"))
        progress["checking"](checked(0))
        progress["checking"](checked(19_542))


def test_without_a_terminal_lines_say_how_many_bytes_and_rows_are_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    upload_and_check()
    assert capsys.readouterr() == (
        "",
        "uploading rows.jsonl: 8.4 MB of 30.3 MB\n"
        "rows.jsonl waits for its check: 8.4 MB of 30.3 MB\n"
        "reading rows.jsonl: 8.4 MB of 30.3 MB\n"
        "checking rows.jsonl, 19542 rows checked: 8.4 MB of 30.3 MB\n",
    )


def test_what_is_done_soon_and_what_answers_in_json_prints_no_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "LINE_SECONDS", 600.0)
    upload_and_check()
    monkeypatch.setattr(output, "LINE_SECONDS", 0.0)
    upload_and_check(quiet=True)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_with_bytes_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=120)
    monkeypatch.setattr(output, "notes", terminal)
    with output.dataset_progress("rows.jsonl", quiet=True) as progress:
        progress["checking"](checked(19_542))
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "checking rows.jsonl, 19542 rows checked" in shown and "8.4/30.3 MB" in shown
