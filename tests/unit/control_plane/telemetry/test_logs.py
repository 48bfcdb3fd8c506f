"""Logs: what is kept of a job that writes too much, and finding lines in them."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from control_plane.core.api.errors import Problem
from control_plane.core.infra import clock
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.logs import log_search, log_throttle
from control_plane.telemetry.logs.log_search import Search, level_of
from control_plane.telemetry.logs.log_throttle import MIB, TokenBucket, admit
from control_plane.telemetry.models import LogChunk, OutboxFile
from control_plane.telemetry.query import selectors
from tests.unit.control_plane.telemetry.world import World, build_world

NOW = clock.now()


@pytest.fixture
def world(db: None) -> World:
    return build_world()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow database is given the time that it needs."""
    monkeypatch.setattr(log_search, "REGEX_MILLISECONDS", 120_000)


def write(world: World, text: str, *, job: str = "trainer") -> None:
    row = getattr(world, job)
    file = OutboxFile.objects.filter(job=row, name=outbox.log_file_name(0)).first()
    outbox.ingest_log(row.pk, 0, offset=file.offset if file else 0, body=text.encode())


def read(world: World, offset: int = 0) -> dict[str, Any]:
    return selectors.log(world.run, world.trainer.pk, incarnation=None, offset=offset, limit=2**20)


# --- what is kept -----------------------------------------------------------------------------------------


def test_output_within_the_budget_is_stored_whole() -> None:
    kept = admit(b"x" * 100, bucket=None, dropped=0, now=NOW)
    assert (len(kept.data), kept.dropped, kept.bucket.bytes) == (100, 0, log_throttle.INITIAL_BYTES - 100)


def test_a_budget_grows_with_time_up_to_a_bound() -> None:
    empty = TokenBucket(0, NOW)
    hour, second = NOW + timedelta(hours=1), NOW + timedelta(seconds=1)
    assert admit(b"x", bucket=empty, dropped=0, now=hour).bucket.bytes == log_throttle.MAX_BYTES - 1
    assert admit(b"", bucket=empty, dropped=0, now=second).bucket.bytes == log_throttle.BYTES_PER_SECOND


def test_output_beyond_the_budget_is_cut_at_a_line_marked_once_and_counted() -> None:
    first = admit(b"one\ntwo\nthree\n", bucket=TokenBucket(9, NOW), dropped=0, now=NOW)
    head, mark = first.data.split(b"two\n")
    assert (head, first.dropped) == (b"one\n", len(b"three\n"))
    assert mark.startswith(b"[oolong] WARNING throttled")
    second = admit(b"four\n", bucket=first.bucket, dropped=first.dropped, now=NOW)
    assert (second.data, second.dropped) == (b"", len(b"three\nfour\n"))
    later = NOW + timedelta(seconds=10)
    third = admit(b"five\n", bucket=second.bucket, dropped=second.dropped, now=later)
    assert (
        third.data == b"[oolong] WARNING throttled: 11 bytes were left out here\nfive\n"
        and third.dropped == 0
    )


def test_a_throttled_log_reads_by_offset_with_its_marks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = clock.now()
    monkeypatch.setattr(clock, "now", lambda: moment)
    monkeypatch.setattr(log_throttle, "INITIAL_BYTES", 10)
    write(world, "kept\n")
    write(world, "a long line that is left out\n")
    write(world, "another\n")
    moment += timedelta(seconds=2 * MIB / log_throttle.BYTES_PER_SECOND)
    write(world, "again\n")
    whole = read(world)
    lines = whole["text"].splitlines()
    assert lines[0] == "kept" and "throttled" in lines[1] and "37 bytes were left out here" in lines[2]
    assert lines[3] == "again" and whole["dropped_bytes"] == 37
    assert read(world, offset=whole["next_offset"] - 6)["text"] == "again\n"
    [file] = selectors.logs(world.run)
    assert (file.size, file.dropped) == (len(whole["text"]), 37)
    row = OutboxFile.objects.get()
    assert row.offset == len("kept\na long line that is left out\nanother\nagain\n")
    world.trainer.refresh_from_db()
    world.trainer.state, world.trainer.outbox = "exited", {"output.log#0": row.offset}
    world.trainer.save()
    assert read(world)["end"] is True


# --- search -----------------------------------------------------------------------------------------------


def found(world: World, **wanted: Any) -> list[str]:
    return [line["text"] for line in log_search.search(world.run, Search(**wanted))["data"]]


def test_a_line_is_found_wherever_its_pieces_lie(world: World) -> None:
    write(world, "step 1 done\nste")
    write(world, "other\n", job="rollout")
    write(world, "p 2 DONE\nstep 3 do")
    assert found(world, text="done") == ["step 1 done", "step 2 DONE"]
    assert found(world, text="step 3") == ["step 3 do"]
    assert (
        found(world, text="e", job="rollout-0") == found(world, text="e", job=world.rollout.pk) == ["other"]
    )
    [first] = log_search.search(world.run, Search(text="step 2"))["data"]
    assert read(world, offset=first["offset"])["text"].startswith("step 2 DONE")


def test_pages_of_found_lines_leave_nothing_out(world: World) -> None:
    for n in range(0, 30, 3):
        write(world, f"line {n}\nline {n + 1}\nli")
        write(world, f"ne {n + 2}\n")
    cursor, seen = None, []
    while True:
        page = log_search.search(world.run, Search(text="line", limit=7, after=cursor))
        seen += [line["text"] for line in page["data"]]
        if not page["has_more"]:
            break
        chunk, within = page["next_cursor"].split(".")
        cursor = (int(chunk), int(within))
    assert seen == [f"line {n}" for n in range(30)]


def test_an_endless_line_is_in_one_page(world: World) -> None:
    for _ in range(3):
        write(world, "line " + "x" * 20_000)
    cursor, seen = None, 0
    for _ in range(4):
        page = log_search.search(world.run, Search(text="line", limit=1, after=cursor))
        seen += len(page["data"])
        if not page["has_more"]:
            break
        chunk, within = page["next_cursor"].split(".")
        cursor = (int(chunk), int(within))
    assert (seen, page["has_more"]) == (3, False)


def test_a_search_looks_at_so_much_and_says_where_to_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MAX_SCANNED_BYTES", 50)
    monkeypatch.setattr(log_search, "BATCH", 200)
    write(world, "".join(f"line number {n}\n" for n in range(20)))
    page = log_search.search(world.run, Search(text="number 19"))
    assert page["data"] == [] and page["has_more"] and page["scanned_bytes"] >= 10


def test_a_search_stops_after_so_many_lines_and_continues_behind_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MAX_SCANNED_LINES", 4)
    monkeypatch.setattr(log_search, "BATCH", 200)  # two lines
    write(world, "\n" * 8 + "number 19\n")
    cursor = None
    pages = 0
    while True:
        page = log_search.search(world.run, Search(text="number 19", after=cursor))
        pages += 1
        if not page["has_more"]:
            break
        assert page["data"] == []
        chunk, within = page["next_cursor"].split(".")
        cursor = (int(chunk), int(within))
    assert (pages, [line["text"] for line in page["data"]]) == (3, ["number 19"])


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("2026-01-01 12:00:00 INFO started", "INFO"), ("WARN: low", "WARNING"), ("[FATAL] out", "CRITICAL"),
        ("Traceback (most recent call last):", "ERROR"), ("ValueError: no", "ERROR"), ("information", ""),
    ],
)  # fmt: skip
def test_a_line_has_the_level_it_names(line: str, level: str) -> None:
    assert level_of(line) == level


def test_levels_times_and_patterns_narrow_a_search(world: World) -> None:
    write(world, "INFO a1\nWARNING b2\nERROR c33\nTraceback (most recent call last):\nDEBUG d\n")
    assert found(world, level="WARNING") == ["WARNING b2", "ERROR c33", "Traceback (most recent call last):"]
    assert found(world, text=r"\y[a-c]\d{2}\y", regex=True) == ["ERROR c33"]
    assert found(world, until=clock.now() - timedelta(hours=1)) == []
    assert len(found(world, since=clock.now() - timedelta(hours=1))) == 5


# --- the doors --------------------------------------------------------------------------------------------


@pytest.fixture
def ask(world: World, client: Client) -> Callable[..., Any]:
    token = world.token()
    return lambda path, **query: client.get(
        f"/api/v1/runs/{world.run.pk}/logs{path}", query, headers={"Authorization": f"Bearer {token}"}
    )


def test_a_log_is_downloaded_whole(world: World, ask: Callable[..., Any]) -> None:
    write(world, "one\n")
    write(world, "two\n")
    answer = ask("/download", job=world.trainer.pk)
    assert answer.getvalue() == b"one\ntwo\n" and "trainer-0.log" in answer["Content-Disposition"]
    assert ask("/search", q="TWO").json()["data"][0]["text"] == "two"
    other = build_world("two")
    assert ask("/download", job=other.trainer.pk).status_code == 404
    assert ask("/download").status_code == 422


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"q": "(", "regex": "true"}, "/q"), ({"q": "x" * 501}, "/q"), ({"level": "LOUD"}, "/level"),
        ({"since": "yesterday"}, "/since"), ({"since": "2026-13-01T00:00:00Z"}, "/since"), ({"limit": "0"}, "/limit"),
        ({"cursor": "x.y"}, "/cursor"), ({"regex": "yes"}, "/regex"),
    ],
)  # fmt: skip
def test_a_wrong_search_names_its_field(
    world: World, ask: Callable[..., Any], query: dict[str, str], field: str
) -> None:
    write(world, "a\n")
    answer = ask("/search", **query)
    assert answer.status_code == 422, answer.content
    assert answer.json()["errors"][0]["pointer"] == field


def test_a_pattern_that_takes_for_ever_is_given_up(
    world: World, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "REGEX_MILLISECONDS", 100)
    write(world, ("a" * 60 + "b\n") * 50)
    answer = ask("/search", q=r"^(a*)(a*)(a*)(a*)(a*)\1\2\3\4\5ab$", regex="true")
    assert answer.status_code == 422 and answer.json()["errors"][0]["code"] == "too_slow"
    assert LogChunk.objects.exists()  # the database continues


def test_a_search_that_ends_early_closes_its_cursor(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "REGEX_MILLISECONDS", 0)
    monkeypatch.setattr(log_search, "BATCH", 200)
    for n in range(100):
        write(world, f"line {n}\n" * 10)
    gc.disable()  # it would close what is left open
    try:
        with pytest.raises(Problem, match="took longer") as caught:  # holds the frames of the search
            log_search.search(world.run, Search(text="line", regex=True))
        assert log_search.search(world.run, Search(text="line", limit=3))["has_more"]
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_cursors WHERE name LIKE '\\_django\\_curs%'")
            assert cursor.fetchone() == (0,), caught.value
    finally:
        gc.enable()


def test_the_batches_of_a_request_share_one_budget_of_time(
    world: World, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(step=60.0)  # every batch takes so long
    monkeypatch.setattr(log_search, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(log_search, "BATCH", 200)  # two lines
    write(world, "".join(f"line {n}\n" for n in range(6)))
    query = {"q": r"\d", "regex": "true"}
    first = ask("/search", **query).json()
    assert [line["text"] for line in first["data"]] == ["line 0", "line 1", "line 2", "line 3"]
    assert first["has_more"] and first["scanned_bytes"] == len("line 0\n") * 4
    rest = ask("/search", **query, cursor=first["next_cursor"]).json()
    assert [line["text"] for line in rest["data"]] == ["line 4", "line 5"] and not rest["has_more"]


def test_a_pattern_that_is_given_up_in_the_middle_says_how_far_it_searched(
    world: World, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Most of the time is gone after the first batch.
    seconds = itertools.cycle([0.0, 59.5])
    monkeypatch.setattr(log_search, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(log_search, "REGEX_MILLISECONDS", 60_000)
    monkeypatch.setattr(log_search, "BATCH", 200)
    write(world, "fine\nfine\n" + ("a" * 60 + "b\n") * 50)
    query = {"q": r"^(a*)(a*)(a*)(a*)(a*)\1\2\3\4\5ab$|fine", "regex": "true"}
    page = ask("/search", **query).json()
    assert [line["text"] for line in page["data"]] == ["fine", "fine"]
    assert page["has_more"] and page["scanned_bytes"] == 10
    monkeypatch.setattr(log_search, "REGEX_MILLISECONDS", 100)
    assert ask("/search", **query, cursor=page["next_cursor"]).status_code == 422
