"""Several files in one body: each is answered as if it had come alone."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest
from django.db import InterfaceError, OperationalError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from control_plane.core.api.errors import Problem
from control_plane.core.models import LiveTopic, StreamFrame
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Attempt, Job, Run, RunEvent
from control_plane.telemetry.ingest import batches, outbox
from control_plane.telemetry.ingest.chunks import Chunk, parse_batch
from control_plane.telemetry.models import MetricPoint, MetricSeries, OutboxFile
from oolong.contracts import agent
from oolong.contracts import telemetry as contract
from tests.support.stack import until
from tests.support.telemetry_batch import encode_batch
from tests.unit.control_plane.telemetry.world import World, build_world, encode, step

FILE = "main-0.jsonl"
PATH = "/api/v1/agent/telemetry"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine leaves no chunk for another time."""
    monkeypatch.setattr(batches, "BATCH_SECONDS", 600.0)


def many_worlds(count: int) -> list[World]:
    """Runs of one project with all their jobs on the first one's node."""
    worlds = [build_world(str(n)) for n in range(count)]
    Attempt.objects.update(node=worlds[0].node)
    Run.objects.update(project=worlds[0].project)
    return worlds


def ship(worlds: list[World], *chunks: Chunk) -> list[agent.ChunkReply]:
    return batches.ingest_batch(worlds[0].node, chunks)


def stored(offset: int) -> agent.ChunkReply:
    return agent.ChunkReply(status=200, offset=offset)


def points_of(world: World) -> set[tuple[int, float]]:
    return set(MetricPoint.objects.filter(series__run=world.run).values_list("x", "value"))


def post(client: Client, world: World, body: bytes) -> Any:
    return client.post(
        PATH, data=body, content_type="application/octet-stream",
        headers={"Authorization": f"Bearer {world.credential}"},
    )  # fmt: skip


def body_of(*chunks: Chunk) -> bytes:
    return encode_batch(
        *(
            (
                agent.TelemetryChunk(
                    job_id=chunk.job_id,
                    file=chunk.name,
                    offset=chunk.offset,
                    bytes=len(chunk.body),
                    skipped=chunk.skipped,
                ),
                chunk.body,
            )
            for chunk in chunks
        )
    )


def test_each_piece_has_the_answer_that_it_would_have_alone(db: None, client: Client) -> None:
    one, two, stranger = build_world("one"), build_world("two"), build_world("stranger")
    Attempt.objects.filter(pk=two.attempt.pk).update(node=one.node)
    body = encode(step(1, reward_mean=0.25), step(2, reward_mean=0.5))
    chunks = [
        Chunk(one.trainer.pk, FILE, 0, body),
        Chunk(one.rollout.pk, FILE, 7, body),
        Chunk(two.trainer.pk, FILE, 0, b"garbage\n" + body),
        Chunk(stranger.trainer.pk, FILE, 0, body),
        Chunk(two.rollout.pk, FILE, 0, b"half a line"),
        Chunk(two.rollout.pk, "output.log#0", 0, b"hello\n"),
        Chunk(two.rollout.pk, "output.log#x", 0, b"hello\n"),
        Chunk(two.rollout.pk, "n" * 121, 0, body),
        Chunk(two.rollout.pk, "a/b", 0, body),
        Chunk(two.rollout.pk, "", 0, body),
        Chunk(two.rollout.pk, "output.log#1", 0, b"x" * (batches.MAX_LOG_CHUNK_BYTES + 1)),
    ]
    answer = post(client, one, body_of(*chunks))
    assert answer.status_code == 200
    replies = msgspec.json.decode(answer.content, type=agent.TelemetryBatchReply).chunks
    assert [(reply.status, reply.offset, reply.code) for reply in replies] == [
        (200, len(body), ""),
        (409, 0, ""),
        (200, len(body) + 8, ""),
        (404, 0, "not_found"),
        (422, 0, "no_complete_line"),
        (200, 6, ""),
        (422, 0, "invalid"),
        (422, 0, "invalid"),
        (422, 0, "invalid"),
        (422, 0, "invalid"),
        (413, 0, "too_large"),
    ]
    assert points_of(one) == points_of(two) == {(1, 0.25), (2, 0.5)} and points_of(stranger) == set()
    assert OutboxFile.objects.get(job=two.trainer).bad_lines == 1


def test_a_line_that_was_too_long_to_ship_is_counted_once_and_reported(db: None, client: Client) -> None:
    world = build_world("one")
    before, after = encode(step(1, reward_mean=0.25)), encode(step(2, reward_mean=0.5))
    skipped = agent.LONGEST_LINE + 1
    end = len(before) + skipped
    for _ in range(2):  # an agent ships at least once
        chunks = [Chunk(world.trainer.pk, FILE, 0, before), Chunk(world.rollout.pk, FILE, 0, before)]
        assert post(client, world, body_of(*chunks)).status_code == 200
        answer = post(client, world, body_of(Chunk(world.trainer.pk, FILE, len(before), b"", skipped)))
        [reply] = msgspec.json.decode(answer.content, type=agent.TelemetryBatchReply).chunks
        assert (reply.status, reply.offset) == (200, end)
    [reply] = ship([world], Chunk(world.trainer.pk, FILE, end, after))
    assert (reply.status, reply.offset) == (200, end + len(after))
    [reply] = ship([world], Chunk(world.rollout.pk, FILE, len(before) + 1, b"", skipped))
    assert (reply.status, reply.offset) == (409, len(before))
    file = OutboxFile.objects.get(job=world.trainer)
    assert (file.lines, file.bad_lines, file.offset) == (3, 1, end + len(after))
    assert points_of(world) == {(1, 0.25), (2, 0.5)}
    [event] = RunEvent.objects.filter(run=world.run, kind="bad_outbox_line")
    assert f"line at byte {len(before)}" in event.message and f"{skipped} bytes" in event.message


@pytest.mark.parametrize(
    "chunk",
    [
        agent.TelemetryChunk(job_id="job", file=FILE, offset=0, bytes=0, skipped=-1),
        agent.TelemetryChunk(job_id="job", file=FILE, offset=0, bytes=1, skipped=1),
        agent.TelemetryChunk(job_id="job", file=FILE, offset=0, bytes=0, skipped=2**53 + 1),
        agent.TelemetryChunk(job_id="job", file="output.log#0", offset=0, bytes=0, skipped=1),
    ],
)
def test_only_a_line_of_an_outbox_is_skipped(chunk: agent.TelemetryChunk) -> None:
    body = msgspec.json.encode(agent.TelemetryBatchHead(chunks=[chunk])) + b"\n" + b"x" * chunk.bytes
    with pytest.raises(Problem, match=r"skipped stands|Expected `int`"):
        parse_batch(body)


def test_many_runs_are_stored_by_as_many_statements_as_one(db: None) -> None:
    worlds = many_worlds(6)
    lines = encode(
        step(1, reward_mean=0.25), contract.Progress(at=1.0, phase="train", done=1, total=2),
        contract.Histogram(at=1.0, name="staleness/consumed", x=1, counts={"0": 5}),
    )  # fmt: skip
    chunks = [Chunk(world.trainer.pk, FILE, 0, lines) for world in worlds]
    assert ship(worlds, *chunks) == [stored(len(lines))] * 6
    body = encode(step(2, reward_mean=0.5, staleness_mean=1.0))
    again = [Chunk(chunk.job_id, FILE, len(lines), body) for chunk in chunks]
    with CaptureQueriesContext(
        connection,
    ) as of_two:
        ship(worlds, *again[:2])
    with CaptureQueriesContext(connection) as of_four:
        assert ship(worlds, *again[2:]) == [stored(len(lines) + len(body))] * 4
    assert len(of_two) == len(of_four)
    for world in worlds:
        assert points_of(world) == {(1, 0.25), (2, 0.5)} | {(2, 1.0)}
        run = Run.objects.get(pk=world.run.pk)
        assert (run.train_step, run.reward_mean, run.staleness_mean) == (2, 0.5, 1.0)
        assert run.metrics == {"reward/mean": 0.5, "staleness/mean": 1.0}
        assert run.progress is not None and run.progress["phase"] == "train"
        assert Job.objects.get(pk=world.trainer.pk).outbox_read == {FILE: len(lines) + len(body)}
        frames = StreamFrame.objects.filter(topic=f"run:{world.run.pk}").order_by("seq")
        assert list(frames.values_list("seq", "type")) == [
            (1, "points"), (2, "histogram"), (3, "progress"), (4, "points"),
        ]  # fmt: skip
    runs = f"runs:{worlds[0].project.pk}"
    assert LiveTopic.objects.get(topic=runs).seq == 12
    assert StreamFrame.objects.filter(topic=runs).count() == 12


def test_sent_again_or_overlapping_it_changes_nothing(db: None) -> None:
    worlds = many_worlds(3)
    first, second = encode(step(1)), encode(step(1), step(2))
    ship(worlds, *(Chunk(world.trainer.pk, FILE, 0, first) for world in worlds))
    chunks = [
        Chunk(worlds[0].trainer.pk, FILE, 0, first),
        Chunk(worlds[1].trainer.pk, FILE, 0, second),
        Chunk(worlds[2].trainer.pk, FILE, 0, second),
    ]
    for _ in range(2):
        assert ship(worlds, *chunks) == [stored(len(first)), stored(len(second)), stored(len(second))]
    assert points_of(worlds[0]) == {(1, 0.1)}
    assert points_of(worlds[1]) == points_of(worlds[2]) == {(1, 0.1), (2, 0.2)}
    assert set(OutboxFile.objects.values_list("lines", "bad_lines", "conflicts")) == {(1, 0, 0), (2, 0, 0)}


@pytest.mark.parametrize(
    ("line", "bad_lines", "conflicts"),
    [
        (step(1, reward_mean=0.75), 0, 1),  # the key has another value already
        (
            contract.TrajectoryLine(  # which only the database refuses
                at=1.0, step=2**80, group_id="g", prompt="", answer="", completion="", reward=1.0, policy_versions=[],
                finish_reason="stop",
            ),
            1,
            0,
        ),
        (contract.Points(at=1.0, axis="step", x=1, values={"policy/version": -1.0}), 1, 0),  # a rule of the table
    ],
)  # fmt: skip
def test_one_that_cannot_be_stored_with_the_others_is_stored_alone(
    db: None, line: contract.AnyLine, bad_lines: int, conflicts: int
) -> None:
    worlds = many_worlds(3)
    first, second = encode(step(1, reward_mean=0.25)), encode(step(2, reward_mean=0.5))
    ship(worlds, *(Chunk(world.trainer.pk, FILE, 0, first) for world in worlds))
    bodies = [second, encode(line) + second, second]
    replies = ship(
        worlds,
        *(
            Chunk(world.trainer.pk, FILE, len(first), body)
            for world, body in zip(worlds, bodies, strict=True)
        ),
    )
    assert replies == [stored(len(first) + len(body)) for body in bodies]
    assert all(points_of(world) == {(1, 0.25), (2, 0.5)} for world in worlds)
    file = OutboxFile.objects.get(job=worlds[1].trainer)
    assert (file.bad_lines, file.conflicts) == (bad_lines, conflicts)
    assert sum(MetricSeries.objects.values_list("conflicts", flat=True)) == conflicts
    assert StreamFrame.objects.filter(topic=f"run:{worlds[0].run.pk}").count() == 2


def test_an_error_with_one_chunk_is_reported_and_the_others_are_stored(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = many_worlds(2)
    body = encode(step(1))

    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(batches.outbox, "ingest_log", fail)
    replies = ship(
        worlds,
        Chunk(worlds[0].trainer.pk, "output.log#0", 0, b"x"),
        Chunk(worlds[1].trainer.pk, FILE, 0, body),
    )
    assert (replies[0].status, replies[0].code) == (500, "internal_error")
    assert "no such luck" in replies[0].detail
    assert replies[1] == stored(len(body))


@pytest.mark.parametrize(
    "error", [OperationalError("the server closed the connection"), InterfaceError("closed")]
)
@pytest.mark.parametrize("place", ["persist", "outbox.ingest_log"])
def test_an_error_of_the_database_is_one_of_the_whole_request(
    db: None, client: Client, monkeypatch: pytest.MonkeyPatch, place: str, error: Exception
) -> None:
    worlds = many_worlds(2)

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"control_plane.telemetry.ingest.batches.{place}", fail)
    client.raise_request_exception = False
    chunks = [Chunk(world.trainer.pk, FILE, 0, encode(step(1))) for world in worlds]
    log = Chunk(worlds[0].trainer.pk, "output.log#0", 0, b"x")
    assert post(client, worlds[0], body_of(*chunks, log)).status_code == 500


def test_what_is_left_after_the_time_of_a_batch_comes_again(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = many_worlds(2)
    body = encode(step(1))
    monkeypatch.setattr(batches, "BATCH_SECONDS", 0.0)
    chunks = [Chunk(world.trainer.pk, FILE, 0, body) for world in worlds]
    log = Chunk(worlds[0].trainer.pk, "output.log#0", 0, b"x")
    replies = ship(worlds, *chunks, log)
    assert replies[:2] == [stored(len(body))] * 2
    assert (replies[2].status, replies[2].code) == (503, "busy")
    assert not OutboxFile.objects.filter(name="output.log#0").exists()


def test_a_chunk_of_a_run_that_is_locked_for_long_has_to_come_again(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    worlds = many_worlds(3)
    body = encode(step(1))
    monkeypatch.setattr(outbox, "LOCK_TIMEOUT", "10ms")
    replies: list[agent.ChunkReply] = []

    def send() -> None:
        try:
            replies.extend(ship(worlds, *(Chunk(world.trainer.pk, FILE, 0, body) for world in worlds)))
        finally:
            connection.close()

    sender = threading.Thread(target=send)
    with transaction.atomic():
        lock_run(worlds[0].run.pk)
        sender.start()
        sender.join(timeout=60)
    assert (replies[0].status, replies[0].code) == (503, "busy")
    assert replies[1:] == [stored(len(body))] * 2


def test_a_run_that_somebody_holds_is_waited_for_after_the_others(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LOCK_TIMEOUT", "120s")
    worlds = many_worlds(3)
    body = encode(step(1))
    replies: list[agent.ChunkReply] = []

    def send() -> None:
        try:
            replies.extend(ship(worlds, *(Chunk(world.trainer.pk, FILE, 0, body) for world in worlds)))
        finally:
            connection.close()

    sender = threading.Thread(target=send)
    with transaction.atomic():
        lock_run(worlds[0].run.pk)
        sender.start()
        until(
            lambda: all(points_of(world) for world in worlds[1:]), seconds=60, what="the other runs' points"
        )
        assert points_of(worlds[0]) == set()
    sender.join(timeout=60)
    assert replies == [stored(len(body))] * 3
    assert points_of(worlds[0]) == {(1, 0.1)}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no newline"),
        (b"[" * (agent.BATCH_HEAD_BYTES + 9), "no newline in the first"),
        (b"{}\n", "missing required field"),
        (b'{"chunks":[{"job_id":"j","file":"f","offset":-1,"bytes":0}]}\n', "chunks[0].offset"),
        (b'{"chunks":[{"job_id":"j","file":"f\\u0000","offset":0,"bytes":0}]}\n', "NUL"),
        (b'{"chunks":[{"job_id":"j","file":"f","offset":0,"bytes":3}]}\nab', "have 3 bytes, and 2 follow"),
        (b'{"chunks":[{"job_id":"j","file":"f","offset":0,"bytes":1}]}\nab', "have 1 bytes, and 2 follow"),
        (body_of(*[Chunk("j", "f", 0, b"x")] * 2), "two chunks of the same file"),
        (body_of(*[Chunk("j", "f", 0, b"")] * (agent.BATCH_CHUNKS + 1)), "129 chunks; send at most 128"),
    ],
)
def test_a_malformed_body_is_refused(db: None, client: Client, body: bytes, says: str) -> None:
    answer = post(client, build_world(), body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
    assert says in str(answer.json())


def test_only_nodes_ship_and_not_more_than_fits(db: None, client: Client) -> None:
    world = build_world()
    chunk = Chunk(world.trainer.pk, FILE, 0, b"\n" * (agent.BATCH_BYTES + agent.BATCH_HEAD_BYTES))
    assert post(client, world, body_of(chunk)).status_code == 413
    assert client.post(PATH).status_code == 401
    answer = client.post(PATH, headers={"Authorization": f"Bearer {world.token()}"})
    assert answer.status_code == 401
