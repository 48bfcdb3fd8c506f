"""Outbox lines and logs: in order, at least once, exactly once at the server."""

from __future__ import annotations

import asyncio
import io
import random
from pathlib import Path

import pytest

from gpu_agents.agent.api import AgentApi, ServerUnavailable
from gpu_agents.agent.job_files import MOST_SEARCHED, skip_line, whole_lines
from gpu_agents.agent.records import JobRecord
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.shipping import OUTBOX_CHUNK_BYTES, TelemetryShipper
from oolong.contracts.agent import BATCH_BYTES, BATCH_CHUNKS, LONGEST_LINE, ChunkReply, TelemetryChunk
from oolong.contracts.lifecycle import JobKind
from tests.support.scripted_control_plane import Fault, ScriptedControlPlane


def record(job_id: str = "job_1", name: str = "trainer", incarnation: int = 0) -> JobRecord:
    return JobRecord(
        job_id=job_id, run_id="run_1", attempt_id="att_1", epoch=1, name=name, kind=JobKind.TRAINER, index=0, slots=[],
        grace_seconds=1.0, incarnation=incarnation,
    )  # fmt: skip


class Node:
    def __init__(self, data: DataDirectory, *records: JobRecord) -> None:
        self.data = data
        self.records = list(records)

    def outbox(self, record: JobRecord, incarnation: int = 0) -> Path:
        directory = self.data.job(record.attempt_id, record.name, incarnation) / "outbox"
        directory.mkdir(parents=True, exist_ok=True)
        return directory / f"main-{incarnation}.jsonl"

    def log(self, record: JobRecord, incarnation: int = 0) -> Path:
        directory = self.data.supervision(record.attempt_id, record.name, incarnation)
        directory.mkdir(parents=True, exist_ok=True)
        return directory / "output.log"

    def shipper(self, api: AgentApi) -> TelemetryShipper:
        return TelemetryShipper(api, self.data, jobs=lambda: self.records, on_progress=lambda: None)


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def test_whole_lines_and_logs_arrive_as_they_are(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record()
    node = Node(data, job)
    shipper = node.shipper(api)
    append(node.outbox(job), b'{"a":1}\n{"b":')
    append(node.log(job), b"step 1")
    await shipper.ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == b'{"a":1}\n'
    assert control_plane.content("job_1", "output.log#0") == b"step 1"
    append(node.outbox(job), b"2}\n")
    await shipper.ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == b'{"a":1}\n{"b":2}\n'


async def test_a_restarted_agent_goes_on_where_the_server_is(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record()
    node = Node(data, job)
    append(node.outbox(job), b"{}\n" * 5)
    await node.shipper(api).ship_once()
    append(node.outbox(job), b"[]\n")
    await node.shipper(api).ship_once()  # a new process: it knows no offset
    assert control_plane.content("job_1", "main-0.jsonl") == b"{}\n" * 5 + b"[]\n"


async def test_a_lost_answer_does_not_store_a_chunk_twice(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record()
    node = Node(data, job)
    shipper = node.shipper(api)
    append(node.outbox(job), b"{}\n")
    control_plane.faults.append(Fault("telemetry", "lose_answer"))
    with pytest.raises(ServerUnavailable):
        await shipper.ship_once()
    assert shipper.offsets("job_1")[0].shipped == 0
    await shipper.ship_once()
    assert shipper.offsets("job_1")[0].shipped == 3
    assert control_plane.content("job_1", "main-0.jsonl") == b"{}\n"


async def test_large_files_go_in_chunks_that_end_at_lines(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record()
    node = Node(data, job)
    lines = b"".join(b'"%s"\n' % (b"x" * size) for size in (700_000, 600_000, 10, 900_000))
    append(node.outbox(job), lines)
    append(node.log(job), bytes(600 * 1024))
    await node.shipper(api).ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == lines
    assert control_plane.content("job_1", "output.log#0") == bytes(600 * 1024)
    assert max(control_plane.chunks) <= OUTBOX_CHUNK_BYTES


async def test_a_line_that_is_too_long_is_skipped_and_holds_up_nothing(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    long, other = record("job_1", "controller"), record("job_2", "trainer")
    node = Node(data, long, other)
    shipper = node.shipper(api)
    append(node.outbox(long), b"{}\n" + b"x" * 3 * LONGEST_LINE + b"\n[]\n")
    append(node.outbox(other), b"{}\n")
    await shipper.ship_once()
    skipped = b"\0" * (3 * LONGEST_LINE + 1)
    assert control_plane.content("job_1", "main-0.jsonl") == b"{}\n" + skipped + b"[]\n"
    assert control_plane.content("job_2", "main-0.jsonl") == b"{}\n"
    assert max(control_plane.chunks) <= OUTBOX_CHUNK_BYTES
    [offset] = shipper.offsets("job_1")
    assert offset.shipped == offset.bytes


async def test_a_line_of_the_greatest_length_ships(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record()
    node = Node(data, job)
    longest = b"x" * (LONGEST_LINE - 1) + b"\n"
    append(node.outbox(job), longest + b"x" + longest)
    await node.shipper(api).ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == longest + b"\0" * (LONGEST_LINE + 1)


async def test_a_sparse_outbox_without_an_end_is_done_with_at_once(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job makes such a file for nothing; reading it would take the agent hours."""
    sent: list[TelemetryChunk] = []

    async def ship(pieces: list[TelemetryChunk], bodies: list[bytes]) -> list[ChunkReply]:
        sent.extend(pieces)
        return [ChunkReply(status=200, offset=piece.offset + piece.bytes + piece.skipped) for piece in pieces]

    monkeypatch.setattr(api, "ship", ship)
    job = record()
    node = Node(data, job)
    with node.outbox(job).open("wb") as file:
        file.truncate(1 << 40)
    shipper = node.shipper(api)
    await shipper.ship_once()
    assert [(piece.bytes, piece.skipped) for piece in sent] == [(0, (1 << 40) - LONGEST_LINE)]
    [offset] = shipper.offsets("job_1")
    assert offset.shipped == offset.bytes


@pytest.mark.parametrize(
    "refusal",
    [
        ChunkReply(status=404, code="not_found"),
        ChunkReply(status=422, code="no_complete_line"),
        ChunkReply(status=500, code="internal_error"),
        ChunkReply(status=200, offset=0),
        ChunkReply(status=409, offset=0),
    ],
)
async def test_a_file_that_the_server_refuses_waits_and_the_others_go_on(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory, refusal: ChunkReply
) -> None:
    bad, good = record("job_1", "controller"), record("job_2", "trainer")
    node = Node(data, bad, good)
    shipper = node.shipper(api)
    control_plane.refused["job_1"] = refusal
    for _ in range(2):
        append(node.outbox(bad), b"{}\n")
        append(node.outbox(good), b"{}\n")
        await shipper.ship_once()
    assert control_plane.content("job_2", "main-0.jsonl") == b"{}\n" * 2
    assert shipper.offsets("job_1")[0].shipped == 0
    control_plane.refused.clear()
    for stream in shipper.streams.values():
        assert stream.retry_at == 0 or stream.job_id == "job_1"
        stream.retry_at = 0
    await shipper.ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == b"{}\n" * 2


async def test_what_all_files_of_a_node_grew_by_is_one_request(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    jobs = [record(f"job_{number}", f"rollout-{number}") for number in range(BATCH_CHUNKS + 10)]
    node = Node(data, *jobs)
    for job in jobs:
        append(node.outbox(job), b"{}\n")
    await node.shipper(api).ship_once()
    assert len(control_plane.requests) == 2  # no more pieces than one may have
    assert all(control_plane.content(job.job_id, "main-0.jsonl") == b"{}\n" for job in jobs)
    for job in jobs[:40]:
        append(node.log(job), b"x")
    await node.shipper(api).ship_once()  # it learns where to continue each outbox
    assert all(control_plane.content(job.job_id, "output.log#0") == b"x" for job in jobs[:40])


async def test_a_body_that_is_refused_as_a_whole_is_sent_again_file_by_file(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    jobs = [record(f"job_{number}", f"rollout-{number}") for number in range(4)]
    node = Node(data, *jobs)
    shipper = node.shipper(api)
    control_plane.poison.add("job_2")
    good = [job for job in jobs if job.job_id != "job_2"]
    for job in jobs:
        append(node.outbox(job), b"{}\n")
    await shipper.ship_once()
    assert all(control_plane.content(job.job_id, "main-0.jsonl") == b"{}\n" for job in good)
    assert [pieces for pieces, _ in control_plane.bodies] == [4, 1, 1, 1, 1]
    for job in jobs:
        append(node.outbox(job), b"[]\n")
    await shipper.ship_once()  # the one that is refused waits, and the others go together again
    assert [pieces for pieces, _ in control_plane.bodies[5:]] == [3]
    bad = shipper.streams["job_2", "main-0.jsonl"]
    assert bad.unbatched and bad.shipped == 0
    control_plane.poison.clear()
    bad.retry_at = 0.0
    await shipper.ship_once()
    assert all(control_plane.content(job.job_id, "main-0.jsonl") == b"{}\n[]\n" for job in jobs)
    assert not bad.unbatched


async def test_only_a_piece_by_itself_makes_a_body_over_a_mebibyte(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    jobs = [record(f"job_{number}", f"rollout-{number}") for number in range(40)]
    node = Node(data, *jobs)
    lines = {job.job_id: b'"%s"\n' % (b"x" * (BATCH_BYTES // 16 - 3)) for job in jobs}
    lines["job_0"] = b'"%s"\n' % (b"x" * (BATCH_BYTES - 3))
    for job in jobs:
        append(node.outbox(job), lines[job.job_id])
    await node.shipper(api).ship_once()
    assert all(control_plane.content(job, "main-0.jsonl") == content for job, content in lines.items())
    assert all(pieces == 1 or size <= BATCH_BYTES for pieces, size in control_plane.bodies)
    assert sorted(pieces for pieces, _ in control_plane.bodies) == [1, 9, 15, 15]


async def test_outboxes_do_not_wait_for_logs(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record()
    node = Node(data, job)
    control_plane.holds_logs = True
    append(node.log(job), b"step 1")
    shipping = asyncio.create_task(node.shipper(api).run(poll_seconds=0.01))
    try:
        async with asyncio.timeout(60):
            for number in range(1, 4):
                append(node.outbox(job), b"{}\n")
                while len(control_plane.content("job_1", "main-0.jsonl")) < 3 * number:
                    await asyncio.sleep(0.01)
            assert control_plane.content("job_1", "output.log#0") == b""
            control_plane.holds_logs = False
            while control_plane.content("job_1", "output.log#0") != b"step 1":
                await asyncio.sleep(0.01)
    finally:
        control_plane.holds_logs = False
        shipping.cancel()
        await asyncio.gather(shipping, return_exceptions=True)


async def test_a_file_that_cannot_be_read_waits_and_the_others_go_on(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    bad, good = record("job_1", "controller"), record("job_2", "trainer")
    node = Node(data, bad, good)
    shipper = node.shipper(api)
    node.outbox(bad).mkdir()  # to open it is an OSError
    node.log(bad).mkdir()
    append(node.outbox(good), b"{}\n")
    append(node.log(good), b"step 1")
    await shipper.ship_once()
    assert control_plane.content("job_2", "main-0.jsonl") == b"{}\n"
    assert control_plane.content("job_2", "output.log#0") == b"step 1"
    assert all(stream.retry_at > 0 for stream in shipper.streams.values() if stream.job_id == "job_1")
    assert all(
        offset.shipped < offset.bytes for offset in shipper.offsets("job_1")
    )  # the job is not done with
    node.outbox(bad).rmdir()
    append(node.outbox(bad), b"[]\n")
    shipper.streams["job_1", "main-0.jsonl"].retry_at = 0.0
    await shipper.ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == b"[]\n"
    assert [offset for offset in shipper.offsets("job_1") if offset.shipped == offset.bytes == 3]


async def test_every_incarnation_is_shipped_under_its_own_name(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory
) -> None:
    job = record(name="rollout-0", incarnation=1)
    node = Node(data, job)
    append(node.outbox(job, 0), b'"first"\n')
    append(node.outbox(job, 1), b'"second"\n')
    await node.shipper(api).ship_once()
    assert control_plane.content("job_1", "main-0.jsonl") == b'"first"\n'
    assert control_plane.content("job_1", "main-1.jsonl") == b'"second"\n'


async def test_final_offsets_leave_out_a_torn_last_line(api: AgentApi, data: DataDirectory) -> None:
    job = record()
    node = Node(data, job)
    shipper = node.shipper(api)
    append(node.outbox(job), b'{}\n{"torn')
    await shipper.ship_once()
    (offset,) = shipper.offsets("job_1")
    assert (offset.bytes, offset.shipped) == (3, 3)


@pytest.mark.parametrize("seed", range(5))
async def test_under_random_faults_every_byte_arrives_once_and_in_order(
    control_plane: ScriptedControlPlane, api: AgentApi, data: DataDirectory, seed: int
) -> None:
    draw = random.Random(seed)
    jobs = [record(f"job_{number}", f"rollout-{number}") for number in range(4)]
    node = Node(data, *jobs)
    shipper = node.shipper(api)
    expected = {job.job_id: b"" for job in jobs}
    for _ in range(30):
        job = draw.choice(jobs)
        lines = b"".join(
            b'{"n":%d}\n' % draw.randrange(10 ** draw.randrange(1, 9)) for _ in range(draw.randrange(1, 40))
        )
        expected[job.job_id] += lines
        append(node.outbox(job), lines)
        for kind in ("refuse", "lose_answer"):
            if draw.random() < 0.4:
                control_plane.faults.append(Fault("telemetry", kind))
        if draw.random() < 0.2:
            shipper = node.shipper(api)  # killed and started again
        try:
            await shipper.ship_once()
        except ServerUnavailable:
            continue
    control_plane.faults.clear()
    await shipper.ship_once()
    assert {job.job_id: control_plane.content(job.job_id, "main-0.jsonl") for job in jobs} == expected


def test_whole_lines_are_found_across_block_borders() -> None:
    for content, end in (
        (b"a\n" + b"b" * 200_000, 2),
        (b"b" * 200_000, 0),
        (b"b" * 100_000 + b"\n", 100_001),
    ):
        assert whole_lines(io.BytesIO(content), len(content)) == end


def test_a_file_without_an_end_is_not_read_to_its_beginning(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("w+b") as file:
        file.truncate(1 << 40)
        assert whole_lines(file, 1 << 40) == (1 << 40) - LONGEST_LINE


def test_the_end_of_a_long_line_is_looked_for_so_far_and_no_farther() -> None:
    content = b"a\n" + b"b" * 200_000 + b"\nc\n"
    assert skip_line(io.BytesIO(content), 2, len(content)) == 200_003
    assert skip_line(io.BytesIO(content), 2, 100_000) == 100_000
    end = MOST_SEARCHED + 100
    assert skip_line(io.BytesIO(b"b" * (MOST_SEARCHED + 1) + b"\n" * 99), 0, end) == end
    assert skip_line(io.BytesIO(b"short"), 0, 1 << 40) == 1 << 40  # it was cut
