from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest
from django.db import connection, transaction

from control_plane.checkpoints.models import Checkpoint
from control_plane.core.api.errors import Problem
from control_plane.core.infra import clock
from control_plane.core.models import StreamFrame
from control_plane.runs.events import set_condition
from control_plane.runs.locking import lock_run
from control_plane.runs.models import Job, Run, RunEvent
from control_plane.telemetry.ingest import outbox
from control_plane.telemetry.models import (
    Histogram,
    LogChunk,
    MetricPoint,
    MetricSeries,
    OutboxFile,
    StateSnapshot,
    TrajectorySample,
)
from oolong.contracts import telemetry as contract
from tests.unit.control_plane.telemetry.world import World, build_world, encode, step

FILE = "main-0.jsonl"


@pytest.fixture
def world(db: None) -> World:
    return build_world()


def ship(job: Job, body: bytes, offset: int = 0, file: str = FILE) -> int:
    return outbox.ingest_outbox(job.pk, file, offset=offset, body=body)


def points_in_database() -> Counter[tuple[str, str, str, int, float]]:
    rows = MetricPoint.objects.values_list("series__name", "series__source", "series__axis", "x", "value")
    return Counter(rows)


def frames(topic: str) -> list[tuple[str, Any]]:
    rows = StreamFrame.objects.filter(topic=topic).order_by("seq")
    return [(row.type, msgspec.json.decode(row.data)) for row in rows]


def test_a_batch_becomes_points_events_and_an_offset(world: World) -> None:
    body = encode(step(1, reward_mean=0.25, staleness_mean=1.5), step(2, reward_mean=0.5))
    assert ship(world.trainer, body) == len(body)
    assert points_in_database() == Counter(
        [
            ("reward/mean", "trainer", "step", 1, 0.25),
            ("staleness/mean", "trainer", "step", 1, 1.5),
            ("reward/mean", "trainer", "step", 2, 0.5),
        ]
    )
    assert frames(f"run:{world.run.pk}")[0] == (
        "points",
        {
            "axis": "step", "x": 1, "attempt": 1, "source": "trainer", "at": 1_700_000_001.0,
            "values": {"reward/mean": 0.25, "staleness/mean": 1.5},
        },
    )  # fmt: skip
    run = Run.objects.get()
    assert (run.train_step, run.reward_mean, run.staleness_mean) == (2, 0.5, 1.5)
    assert Job.objects.get(pk=world.trainer.pk).outbox_read == {FILE: len(body)}


def test_sent_again_it_changes_nothing(world: World) -> None:
    body = encode(*(step(x) for x in range(10)))
    ship(world.trainer, body)
    before, said = points_in_database(), frames(f"run:{world.run.pk}")
    assert ship(world.trainer, body) == len(body)
    assert points_in_database() == before
    assert frames(f"run:{world.run.pk}") == said
    assert OutboxFile.objects.get().lines == 10


def test_only_the_new_part_of_an_overlapping_batch_is_read(world: World) -> None:
    body = encode(*(step(x) for x in range(10)))
    half = len(encode(*(step(x) for x in range(5))))
    ship(world.trainer, body[:half])
    assert ship(world.trainer, body) == len(body)
    assert points_in_database() == Counter(("reward/mean", "trainer", "step", x, x / 10) for x in range(10))
    assert len([1 for type, _ in frames(f"run:{world.run.pk}") if type == "points"]) == 10
    assert ship(world.trainer, body[: half - 30], offset=0) == len(body)


def test_a_gap_is_refused_with_the_offset_to_go_on_from(world: World) -> None:
    body = encode(step(1))
    ship(world.trainer, body)
    with pytest.raises(outbox.OffsetGap) as refused:
        ship(world.trainer, encode(step(3)), offset=len(body) + 50)
    assert refused.value.offset == len(body)
    assert sum(points_in_database().values()) == 1


def test_half_a_line_waits_for_its_other_half(world: World) -> None:
    body = encode(step(1), step(2))
    whole = len(encode(step(1)))
    assert ship(world.trainer, body[: whole + 10]) == whole
    assert ship(world.trainer, body[whole:], offset=whole) == len(body)
    assert sum(points_in_database().values()) == 2
    with pytest.raises(Problem, match="no newline"):
        ship(world.trainer, b'{"type"', offset=len(body))


def test_a_bad_line_is_counted_and_noted_and_blocks_nothing(world: World) -> None:
    first = encode(step(1))
    body = first + b"garbage\n" + encode(step(2))
    assert ship(world.trainer, body) == len(body)
    assert sum(points_in_database().values()) == 2
    file = OutboxFile.objects.get()
    assert (file.lines, file.bad_lines) == (3, 1)
    event = RunEvent.objects.get(kind="bad_outbox_line")
    assert f"{FILE}, line at byte {len(first)}" in event.message


def test_a_flood_of_bad_lines_leaves_a_few_events_and_the_count(world: World) -> None:
    body = b"garbage\n" * 100
    ship(world.trainer, body)
    ship(world.trainer, body, offset=len(body))
    assert OutboxFile.objects.get().bad_lines == 200
    assert RunEvent.objects.filter(kind="bad_outbox_line").count() == outbox.MAX_REPORTED_BAD_LINES + 1


def test_a_line_that_only_the_database_refuses_is_found_and_left_out(world: World) -> None:
    poison = contract.TrajectoryLine(
        at=1.0, step=2**80, group_id="g", prompt="", answer="", completion="", reward=1.0, policy_versions=[],
        finish_reason="stop",
    )  # fmt: skip
    body = encode(step(1), poison, step(2))
    assert ship(world.trainer, body) == len(body)
    assert points_in_database().total() == 2
    assert OutboxFile.objects.get().bad_lines == 1
    assert "out of range" in RunEvent.objects.get(kind="bad_outbox_line").message
    assert [type for type, _ in frames(f"run:{world.run.pk}") if type == "points"] == ["points", "points"]


def test_a_value_that_breaks_a_rule_of_the_run_is_left_out_with_the_seconds_of_its_line(world: World) -> None:
    good = contract.Points(at=1.0, axis="step", x=1, values={"time/train_seconds": 2.0, "policy/version": 7})
    poison = contract.Points(
        at=2.0, axis="step", x=2, values={"time/train_seconds": 40.0, "policy/version": -1}
    )
    last = contract.Points(at=3.0, axis="step", x=3, values={"time/train_seconds": 3.0})
    body = encode(good, poison, last)
    assert ship(world.trainer, body) == len(body)
    assert OutboxFile.objects.get().bad_lines == 1
    assert "policy_version" in RunEvent.objects.get(kind="bad_outbox_line").message
    run = Run.objects.get()
    assert (run.train_step, run.policy_version) == (3, 7)
    assert Job.objects.get(pk=world.trainer.pk).working_seconds == 5.0


@pytest.mark.parametrize("depth", [600, 900, 970, 985, 100_000])
def test_a_document_that_is_nested_too_deeply_blocks_nothing(world: World, depth: int) -> None:
    deep = b'{"type":"state","at":1.0,"name":"deep","value":{"v":' + b"[" * depth + b"]" * depth + b"}}\n"
    body = encode(step(1)) + deep + encode(step(2))
    assert ship(world.trainer, body) == len(body)
    assert points_in_database().total() == 2
    assert OutboxFile.objects.get().bad_lines + StateSnapshot.objects.count() == 1
    if depth == 100_000:
        assert "recursion" in RunEvent.objects.get(kind="bad_outbox_line").message


def test_the_same_key_with_another_value_is_a_visible_conflict_and_the_first_one_stays(world: World) -> None:
    body = encode(step(1, reward_mean=0.25), step(1, reward_mean=0.75), step(1, reward_mean=0.25))
    ship(world.trainer, body)
    ship(world.trainer, encode(step(1, reward_mean=0.5)), offset=len(body))
    assert points_in_database() == Counter([("reward/mean", "trainer", "step", 1, 0.25)])
    assert MetricSeries.objects.get().conflicts == 2
    assert OutboxFile.objects.get().conflicts == 2
    assert "reward/mean of trainer at step 1" in RunEvent.objects.get(kind="metric_conflict").message


def test_restarts_in_place_and_parts_of_a_job_are_sources_of_their_own(world: World) -> None:
    line = contract.Points(at=1.0, axis="time", x=5, values={"engine/version": 1.0}, source="engine")
    ship(world.rollout, encode(line), file="main-0.jsonl")
    ship(world.rollout, encode(line), file="main-2.jsonl")
    assert set(MetricSeries.objects.values_list("source", flat=True)) == {
        "rollout-0/engine",
        "rollout-0#2/engine",
    }
    assert Run.objects.get().train_step == 0


def test_histograms_state_snapshots_and_trajectories_are_stored(world: World) -> None:
    sample = contract.TrajectoryLine(
        at=7.0, step=3, group_id="0-1-0", prompt="p\x00", answer="a", completion="c", reward=0.5,
        policy_versions=[1, 2, 2, 3], version_texts=["x", "y"], finish_reason="stop",
        reward_parts={"exact_match": 1.0, "length": -0.5}, reward_result="exact",
        reward_text="It is\x00 right.",
    )  # fmt: skip
    body = encode(
        contract.Histogram(at=1.0, name="staleness/consumed", x=3, counts={"0": 5, "4": 1}),
        contract.StateSnapshot(at=2.0, name="pipeline", value={"gate": {"admissible": 3}}),
        contract.StateSnapshot(at=4.0, name="pipeline", value={"gate": {"admissible": 5}}),
        sample,
    )
    ship(world.trainer, body)
    older = encode(contract.StateSnapshot(at=3.0, name="pipeline", value={"gate": "late"}))
    ship(world.rollout, older)
    assert Histogram.objects.get().counts == {"0": 5, "4": 1}
    assert StateSnapshot.objects.get().value == {"gate": {"admissible": 5}}
    stored = TrajectorySample.objects.get()
    assert (stored.prompt, stored.policy_versions, stored.version_texts) == (
        "p\ufffd",
        [1, 2, 2, 3],
        ["x", "y"],
    )
    assert (stored.reward_parts, stored.reward_result) == ({"exact_match": 1.0, "length": -0.5}, "exact")
    assert stored.reward_text == "It is\ufffd right."
    assert [type for type, _ in frames(f"run:{world.run.pk}")] == [
        "histogram", "state", "state", "trajectory", "state",
    ]  # fmt: skip


def test_what_concerns_the_run_reaches_the_run(world: World) -> None:
    body = encode(
        contract.Progress(at=1.0, phase="boot", done=1, total=2),
        contract.Progress(at=2.0, phase="train", done=4, total=9, message="m"),
        contract.Note(at=3.0, kind="engine_restarted", message="engine 0"),
        contract.Summary(at=4.0, name="trainer", value={"train_steps": 9}),
        contract.CheckpointLine(
            at=5.0, step=9, directory="/d", manifest_sha256="a" * 64, bytes=10, final=True
        ),
    )
    ship(world.trainer, body)
    run = Run.objects.get()
    assert run.progress["phase"] == "train" and run.progress["done"] == 4
    assert run.summary == {"trainer": {"train_steps": 9}}
    assert RunEvent.objects.filter(kind="engine_restarted").exists()
    assert Checkpoint.objects.get().step == 9


def test_an_ended_attempt_is_still_listened_to(world: World) -> None:
    world.attempt.status = "ENDED"
    world.attempt.save()
    ship(world.trainer, encode(step(1)))
    assert points_in_database().total() == 1


def test_a_log_arrives_once_in_order_and_is_announced(world: World) -> None:
    text = "1st line\n2nd line ✓\n".encode()
    assert outbox.ingest_log(world.trainer.pk, 0, offset=0, body=text[:5]) == 5
    assert outbox.ingest_log(world.trainer.pk, 0, offset=0, body=text) == len(text)
    assert outbox.ingest_log(world.trainer.pk, 0, offset=3, body=text[3:7]) == len(text)
    with pytest.raises(outbox.OffsetGap):
        outbox.ingest_log(world.trainer.pk, 0, offset=999, body=b"x")
    assert b"".join(LogChunk.objects.order_by("offset").values_list("data", flat=True)) == text
    pieces = [data for _, data in frames(f"run:{world.run.pk}:logs")]
    assert [(piece["offset"], piece["next_offset"]) for piece in pieces] == [(0, 5), (5, len(text))]
    assert Job.objects.get(pk=world.trainer.pk).outbox_read == {"output.log#0": len(text)}


def test_a_big_piece_of_log_is_announced_without_its_text(world: World) -> None:
    outbox.ingest_log(world.trainer.pk, 0, offset=0, body=b"x" * 20_000)
    assert frames(f"run:{world.run.pk}:logs")[0][1]["text"] is None


def test_a_transaction_that_does_not_commit_leaves_nothing_behind(transactional_db: None) -> None:
    world = build_world()
    body = encode(step(1), contract.StateSnapshot(at=1.0, name="d", value={}))
    with transaction.atomic():
        ship(world.trainer, body)
        transaction.set_rollback(True)
    assert not MetricPoint.objects.exists() and not StreamFrame.objects.exists()
    assert not OutboxFile.objects.exists()
    assert ship(world.trainer, body) == len(body)
    assert points_in_database().total() == 1


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns are waited for, however slow the machine is."""
    monkeypatch.setattr(outbox, "LOCK_TIMEOUT", "120s")


def test_two_shippers_at_once_store_every_line_once(transactional_db: None, patient: None) -> None:
    world = build_world()
    lines = [step(x) for x in range(300)]
    body = encode(*lines)
    borders = [len(encode(*lines[:n])) for n in range(0, 301, 30)]
    start = threading.Barrier(4)

    def ship_all(job: Job, back: int) -> None:
        """Every piece overlaps the one before by `back` pieces."""
        try:
            start.wait()
            for n in range(1, len(borders)):
                offset = borders[max(0, n - 1 - back)]
                try:
                    ship(job, body[offset : borders[n]], offset)
                except outbox.OffsetGap as gap:
                    ship(job, body[gap.offset : borders[n]], gap.offset)
        finally:
            connection.close()

    shippers = [(world.trainer, 0), (world.trainer, 3), (world.rollout, 0), (world.rollout, 2)]
    threads = [threading.Thread(target=ship_all, args=shipper) for shipper in shippers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    expected = Counter(
        ("reward/mean", job, "step", x, x / 10) for x in range(300) for job in ("trainer", "rollout-0")
    )
    assert points_in_database() == expected
    announced = Counter(
        (data["source"], data["x"]) for type, data in frames(f"run:{world.run.pk}") if type == "points"
    )
    assert announced == Counter((job, x) for x in range(300) for job in ("trainer", "rollout-0"))


def test_ingest_and_moves_of_the_run_never_wait_for_each_other_in_a_circle(
    transactional_db: None, patient: None
) -> None:
    worlds = [build_world("one"), build_world("two")]
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                raise
            finally:
                connection.close()

        return run

    def ship_often(job: Job) -> None:
        offset = 0
        for x in range(25):
            body = encode(
                step(x),
                contract.Progress(at=1.0, phase="train", done=x, total=25),
                contract.Note(at=1.0, kind="k", message="m"),
                contract.StateSnapshot(at=float(x), name="pipeline", value={"x": x}),
            )
            offset = ship(job, body, offset)
            outbox.ingest_log(job.pk, 0, offset=x, body=b"x")

    def move_often(run_id: str) -> None:
        for n in range(25):
            with transaction.atomic():
                run = lock_run(run_id)
                for job in Job.objects.filter(attempt__run=run):
                    job.pid = n
                    job.save()
                set_condition(run, "UNRESPONSIVE", n % 2 == 1, now=clock.now())

    threads = []
    for world in worlds:
        threads += [
            threading.Thread(target=guarded(partial(ship_often, world.trainer))),
            threading.Thread(target=guarded(partial(ship_often, world.rollout))),
            threading.Thread(target=guarded(partial(move_often, world.run.pk))),
        ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert failures == []
    assert points_in_database().total() == 4 * 25


def test_an_attempt_remembers_how_many_tokens_it_said_were_generated(world: World) -> None:
    def told(tokens: int) -> bytes:
        return encode(
            contract.StateSnapshot(at=1.0, name="pipeline", value={"tokens": {"generated": tokens}})
        )

    body = told(100) + told(250) + encode(contract.StateSnapshot(at=2.0, name="other", value={"tokens": {}}))
    ship(world.trainer, body)
    ship(world.trainer, body + told(90), file="main-1.jsonl")  # a repeated or older word takes nothing back
    world.trainer.attempt.refresh_from_db()
    assert world.trainer.attempt.tokens_generated == 250
