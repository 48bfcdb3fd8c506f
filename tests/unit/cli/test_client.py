"""The SDK: retries, pages, downloads and streams."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oolong.client import Client, Invalid, NotFound, OolongError, RetryPolicy, StreamGap, Unreachable, models
from oolong.client.models import Run
from oolong.client.request_spec import RequestSpec
from oolong.client.sync import runs as sync_runs
from oolong.client.transport import EventReader, LineReader
from tests.support.scripted_api import TOKEN, Answer, Asked, ScriptedApi, page, problem, run, shaped

QUICK = RetryPolicy(tries=4, first_seconds=0.01, longest_seconds=0.5)


@pytest.fixture
def client(api: ScriptedApi) -> Iterator[Client]:
    with Client(api.url, TOKEN, retries=QUICK) as client:
        yield client


def test_an_answer_is_typed_and_a_newer_servers_fields_do_no_harm(api: ScriptedApi, client: Client) -> None:
    api.script["GET runs/run_1"] = Answer(run("SOMETHING_NEW", new_field={"a": 1}))
    found = client.runs.get("run_1")
    assert isinstance(found, Run)
    assert (found.status, found.ended, found.dataset.ref) == ("SOMETHING_NEW", False, "letters@1")


def test_errors_are_typed_and_carry_code_and_pointers(api: ScriptedApi, client: Client) -> None:
    api.script["POST runs"] = Answer(
        problem("invalid_spec", "bad", [{"pointer": "/name", "code": "missing", "message": "needed"}]), 422
    )
    with pytest.raises(Invalid) as caught:
        client.runs.create({})
    assert (caught.value.code, caught.value.errors[0].pointer) == ("invalid_spec", "/name")
    assert str(caught.value) == "bad\n  /name: needed"
    with pytest.raises(NotFound):
        client.runs.get("run_9")


def test_a_busy_server_gets_the_next_request_when_it_said_so(
    api: ScriptedApi, client: Client, pauses: list[float]
) -> None:
    api.script["GET runs/run_1"] = [
        Answer(problem("busy", "busy"), 429, {"Retry-After": "0.3"}),
        Answer(run()),
    ]
    assert client.runs.get("run_1").id == "run_1"
    assert pauses == [0.3]


def test_a_post_without_a_key_is_never_repeated(api: ScriptedApi, client: Client) -> None:
    api.script["POST strange"] = Answer(problem("unavailable", "away"), 503)
    with pytest.raises(OolongError):
        client.send(RequestSpec("POST", "strange", None, body={}))
    assert len(api.asked) == 1


def test_what_the_rate_limit_refused_is_sent_again_without_a_key_too(
    api: ScriptedApi, client: Client
) -> None:
    limited = Answer(problem("rate_limited", "613 of 600 units a minute are used"), 429, {"Retry-After": "0"})
    api.script["POST strange"] = [limited, Answer({}, 200)]
    client.send(RequestSpec("POST", "strange", None, body={}))
    assert len(api.asked) == 2


def test_a_server_that_is_not_there_is_named() -> None:
    with (
        Client("http://127.0.0.1:9", TOKEN, retries=QUICK) as client,
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"),
    ):
        client.me()


def test_pages_are_followed_to_the_end(api: ScriptedApi, client: Client) -> None:
    cursors: list[str | None] = []

    def runs(asked: Asked) -> Answer:
        cursor = asked.query.get("cursor")
        cursors.append(cursor)
        number = int(cursor or 0)
        return Answer(page(run(id=f"run_{number}"), cursor=str(number + 1) if number < 3 else None))

    api.script["GET runs"] = runs
    assert [found.id for found in client.runs.list(status="RUNNING")] == [
        f"run_{number}" for number in range(4)
    ]
    assert cursors == [None, "1", "2", "3"]


def test_an_upload_is_sent_again_from_its_start(api: ScriptedApi, client: Client, tmp_path: Path) -> None:
    content = bytes(range(256)) * 4096
    (tmp_path / "rows.jsonl").write_bytes(content)
    answer = Answer(shaped(models.Upload, id="upl_1", filename="rows.jsonl", bytes=len(content)), 201)
    api.script["POST uploads"] = [Answer(problem("unavailable", "away"), 503), answer]
    seen: list[tuple[int, int]] = []
    client.upload(
        tmp_path / "rows.jsonl", purpose="dataset", progress=lambda done, total: seen.append((done, total))
    )
    assert [asked.body for asked in api.asked] == [content, content]
    assert api.asked[1].headers["X-Content-SHA256"] == hashlib.sha256(content).hexdigest()
    assert seen[-1] == (len(content), len(content))


def checkpoint(content: bytes) -> dict[str, object]:
    digest = hashlib.sha256(content).hexdigest()
    return shaped(models.Checkpoint, id="ckpt_1", tar_sha256=digest, bytes=len(content), state="STORED")


def test_a_broken_download_goes_on_where_it_ended(api: ScriptedApi, client: Client, tmp_path: Path) -> None:
    content = bytes(range(256)) * 8192
    api.script["GET checkpoints/ckpt_1"] = Answer(checkpoint(content))

    def download(asked: Asked) -> Answer:
        begin = int(asked.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        status = 206 if begin else 200
        return Answer(content[begin:], status, cut_after=None if begin else 700_000)

    api.script["GET checkpoints/ckpt_1/download"] = download
    target = client.checkpoints.download("ckpt_1", tmp_path / "c.tar")
    assert target.read_bytes() == content
    ranges = [asked.headers.get("Range") for asked in api.asked if asked.path.endswith("download")]
    assert ranges[0] is None and ranges[1] is not None and int(ranges[1][6:-1]) > 0
    assert list(tmp_path.iterdir()) == [target]


def test_a_download_that_does_not_verify_is_removed(api: ScriptedApi, client: Client, tmp_path: Path) -> None:
    api.script["GET checkpoints/ckpt_1"] = Answer(checkpoint(b"good"))
    api.script["GET checkpoints/ckpt_1/download"] = Answer(b"evil")
    with pytest.raises(OolongError, match="sha256"):
        client.checkpoints.download("ckpt_1", tmp_path / "c.tar")
    assert list(tmp_path.iterdir()) == []


def events(*frames: tuple[int, str, object]) -> bytes:
    subscribed = {"topic": "run:run_1", "type": "subscribed", "seq": 0}
    text = f": hello\n\nevent: subscribed\ndata: {json.dumps(subscribed)}\n\n"
    for seq, kind, data in frames:
        body = json.dumps({"topic": "run:run_1", "seq": seq, "type": kind, "data": data})
        text += f"id: {seq}\nevent: {kind}\ndata: {body}\n\n"
    return text.encode()


def test_a_stream_goes_on_after_the_last_frame_it_gave(api: ScriptedApi, client: Client) -> None:
    asked_after: list[str | None] = []
    parts = [
        events((1, "points", {}), (2, "points", {})),
        events((3, "status", {})) + b"event: end\ndata: {}\n\n",
    ]

    def stream(asked: Asked) -> Answer:
        asked_after.append(asked.query.get("after_seq"))
        return Answer(parts.pop(0), headers={"Content-Type": "text/event-stream"})

    api.script["GET stream"] = stream
    assert [frame.seq for frame in client.runs.stream("run_1", after_seq=0)] == [1, 2, 3]
    assert asked_after == ["0", "2"]


def test_lost_frames_are_never_passed_over_in_silence(api: ScriptedApi, client: Client) -> None:
    api.script["GET stream"] = Answer(events((1, "points", {}), (9, "gap", {"from": 2, "to": 9})))
    stream = client.runs.stream("run_1")
    assert next(stream).seq == 1
    with pytest.raises(StreamGap, match="2 to 9"):
        next(stream)


def test_where_a_proxy_kills_streams_they_are_polled(api: ScriptedApi, client: Client) -> None:
    answers = [
        Answer(events(), cut_after=5),  # cut before anything came
        Answer(events()),  # held back, and ended by the proxy
        Answer(events()),  # polled: nothing new
        Answer(events((1, "points", {}))),
        Answer(events((2, "status", {})) + b"event: end\ndata: {}\n\n"),
    ]
    asked: list[tuple[str | None, str | None]] = []

    def stream(one: Asked) -> Answer:
        asked.append((one.query.get("after_seq"), one.query.get("poll")))
        return answers.pop(0)

    api.script["GET stream"] = stream
    assert [frame.seq for frame in client.runs.stream("run_1")] == [1, 2]
    # From the number it was subscribed at on, and no sooner: nothing is sent twice, nothing between is lost.
    assert asked == [(None, None), (None, None), ("0", "5"), ("0", "5"), ("1", "5")]


def test_a_stream_that_brings_frames_is_not_polled(api: ScriptedApi, client: Client) -> None:
    polled: list[str | None] = []
    parts = [events((n, "points", {})) for n in range(1, 5)] + [events() + b"event: end\ndata: {}\n\n"]

    def stream(one: Asked) -> Answer:
        polled.append(one.query.get("poll"))
        return Answer(parts.pop(0))

    api.script["GET stream"] = stream
    assert len(list(client.runs.stream("run_1", after_seq=0))) == 4
    assert set(polled) == {None}


def test_event_streams_are_read_as_the_standard_says() -> None:
    reader = EventReader()
    lines = [
        ": comment",
        "",
        "event: points",
        "id: 5",
        "data: a",
        "data:b",
        "",
        "data: c",
        "",
        "event: lonely",
        "",
    ]
    assert [event for event in map(reader.feed, lines) if event] == [
        ("points", "5", "a\nb"),
        ("message", "5", "c"),
    ]


def test_line_breaks_of_unicode_inside_a_frame_are_text(api: ScriptedApi, client: Client) -> None:
    text = "one\u2028two\x85three\x1cfour"
    frame = {"topic": "run:run_1:logs", "seq": 1, "type": "log", "data": {"text": text}}
    body = f"id: 1\nevent: log\ndata: {json.dumps(frame, ensure_ascii=False)}\n\nevent: end\ndata: {{}}\n\n"
    api.script["GET stream"] = Answer(body.encode())
    assert [found.data["text"] for found in client.stream("run:run_1:logs", after_seq=0)] == [text]


def test_lines_are_whole_however_their_bytes_come() -> None:
    reader, data = LineReader(), "a é\r\nb\n\nrest".encode()
    lines = [line for n in range(len(data)) for line in reader.feed(data[n : n + 1])]
    assert lines == ["a é", "b", ""]


def test_a_wait_lets_the_server_wait_and_says_what_it_knows(
    api: ScriptedApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_runs, "LONG_POLL_SECONDS", 100_000)
    asked_for: list[dict[str, str]] = []

    def show(asked: Asked) -> Answer:
        asked_for.append(asked.query)
        return Answer(run("SUCCEEDED" if asked.query.get("seen") == "RUNNING" else "RUNNING"))

    api.script["GET runs/run_1"] = show
    assert client.runs.wait("run_1", poll_seconds=0.01, timeout_seconds=600).status == "SUCCEEDED"
    assert asked_for[0] == {}
    assert asked_for[1]["seen"] == "RUNNING" and 1 <= int(asked_for[1]["wait"]) <= 600, (
        "within the time that is left"
    )


def test_a_name_stays_one_part_of_the_address(api: ScriptedApi, client: Client) -> None:
    for name in ("../tokens", "a?b=c", "a b#c"):
        with pytest.raises(NotFound):
            client.runs.get(name)
    assert [asked.path for asked in api.asked] == ["runs/../tokens", "runs/a?b=c", "runs/a b#c"]


def test_what_goes_away_warns_the_caller(api: ScriptedApi, client: Client) -> None:
    headers = {"Deprecation": "@1767225600", "Sunset": "Tue, 01 Sep 2026 00:00:00 GMT"}
    api.script["GET runs/run_1"] = Answer(run(), headers=headers)
    with pytest.warns(DeprecationWarning, match="GET runs/run_1 goes away on Tue, 01 Sep 2026"):
        client.runs.get("run_1")
