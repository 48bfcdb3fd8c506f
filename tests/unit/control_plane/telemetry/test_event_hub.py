from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from channels.db import database_sync_to_async
from django.db import connection

from control_plane.core.models import StreamFrame
from control_plane.core.stream import event_hub as hubs
from tests.support.waiting import eventually
from tests.unit.control_plane.telemetry.streaming import Reader, apublish, points

Readers = Callable[..., Reader]


async def test_a_subscriber_hears_its_number_first_and_then_what_is_new(
    hub: hubs.EventHub, reader: Readers
) -> None:
    await apublish("run:a", points(1), points(2))
    one = reader()
    assert await hub.subscribe(one.mailbox, "run:a") == 2
    await apublish("run:a", points(3))
    await apublish("run:b", points(9))
    await one.until(lambda r: r.frames)
    assert one.notices == [{"topic": "run:a", "type": "subscribed", "seq": 2}]
    assert one.frames[0] | {"ts": ""} == {
        "topic": "run:a", "seq": 3, "type": "points", "ts": "", "data": points(3)[1],
    }  # fmt: skip


async def test_replay_joins_the_live_feed_without_a_hole_or_a_repeat(
    hub: hubs.EventHub, reader: Readers
) -> None:
    await apublish("run:a", *map(points, range(300)))

    async def keep_publishing() -> None:
        for x in range(300, 700, 4):
            await apublish("run:a", *map(points, range(x, x + 4)))

    publisher = asyncio.create_task(keep_publishing())
    early, late = reader(), reader()
    await hub.subscribe(early.mailbox, "run:a", after_seq=0)
    draining = asyncio.create_task(early.until(lambda r: len(r.frames) >= 700))
    await asyncio.sleep(0.05)
    await hub.subscribe(late.mailbox, "run:a", after_seq=123)
    await late.until(lambda r: len(r.frames) >= 700 - 123)
    await asyncio.gather(publisher, draining)
    assert early.numbers() == list(range(1, 701))
    assert late.numbers() == list(range(124, 701))
    assert [frame["data"]["x"] for frame in early.frames] == list(range(700))


async def test_a_replay_longer_than_the_mailbox_waits_for_its_reader_and_makes_no_gap(
    hub: hubs.EventHub, reader: Readers
) -> None:
    await apublish("run:a", *map(points, range(1000)))
    one = reader(frames_per_topic=20)
    await hub.subscribe(one.mailbox, "run:a", after_seq=0)
    await one.until(lambda r: len(r.frames) >= 1000)
    assert one.numbers() == list(range(1, 1001))


async def test_a_slow_reader_gets_a_gap_and_the_others_are_not_delayed(
    hub: hubs.EventHub, reader: Readers
) -> None:
    slow, good = reader(frames_per_topic=50), reader(frames_per_topic=50)
    await hub.subscribe(slow.mailbox, "run:a")
    await hub.subscribe(good.mailbox, "run:a")
    for x in range(100):
        await apublish("run:a", points(x))
        await good.until(lambda r, x=x: len(r.frames) == x + 1)
    assert good.numbers() == list(range(1, 101))

    await slow.until(lambda r: r.frames)
    assert len(slow.frames) <= 50
    covered: list[int] = []
    for frame in slow.frames:
        gap = frame["data"] if frame["type"] == "gap" else {"from": frame["seq"], "to": frame["seq"]}
        covered += range(gap["from"], gap["to"] + 1)
    assert covered == list(range(1, 101))
    assert slow.frames[0]["type"] == "gap"


async def test_of_documents_and_statuses_a_slow_reader_gets_the_newest(
    hub: hubs.EventHub, reader: Readers
) -> None:
    slow = reader()
    await hub.subscribe(slow.mailbox, "run:a")
    await apublish(
        "run:a",
        ("state", {"name": "pipeline", "value": 1}),
        ("status", {"id": "run_a", "status": "STARTING"}),
        points(1),
        ("state", {"name": "other", "value": 1}),
        ("state", {"name": "pipeline", "value": 2}),
        ("status", {"id": "run_a", "status": "RUNNING"}),
    )
    await _until_fed(slow, 6)
    await slow.until(lambda r: r.frames)
    assert [(frame["seq"], frame["type"]) for frame in slow.frames] == [
        (3, "points"), (4, "state"), (5, "state"), (6, "status"),
    ]  # fmt: skip


async def test_an_overflow_keeps_the_newest_status_beside_the_gap(
    hub: hubs.EventHub, reader: Readers
) -> None:
    slow = reader(frames_per_topic=10)
    await hub.subscribe(slow.mailbox, "run:a")
    await apublish(
        "run:a", points(1), ("status", {"id": "run_a", "status": "RUNNING"}), *map(points, range(2, 11))
    )
    await _until_fed(slow, 11)
    await slow.until(lambda r: r.frames)
    assert [(f["seq"], f["type"], f["data"].get("from")) for f in slow.frames] == [
        (2, "status", None),
        (11, "gap", 1),
    ]


async def test_pruned_frames_are_announced_as_a_gap(hub: hubs.EventHub, reader: Readers) -> None:
    await apublish("run:a", *map(points, range(10)))
    await database_sync_to_async(StreamFrame.objects.filter(seq__lte=7).delete)()
    one = reader()
    await hub.subscribe(one.mailbox, "run:a", after_seq=2)
    await one.until(lambda r: len(r.frames) == 4)
    assert one.frames[0]["data"] == {"from": 3, "to": 7}
    assert one.numbers() == [7, 8, 9, 10]

    await database_sync_to_async(StreamFrame.objects.all().delete)()
    two = reader()
    await hub.subscribe(two.mailbox, "run:a", after_seq=2)
    await two.until(lambda r: r.frames)
    assert two.frames[0]["type"] == "gap" and two.frames[0]["data"] == {"from": 3, "to": 10}


async def test_a_number_that_was_never_given_out_is_answered_with_a_gap(
    hub: hubs.EventHub, reader: Readers
) -> None:
    await apublish("run:a", points(1))
    one = reader()
    await hub.subscribe(one.mailbox, "run:a", after_seq=4711)
    await one.until(lambda r: r.frames)
    assert one.frames[0]["data"] == {"from": 0, "to": 1}


async def test_a_lost_listen_connection_costs_time_but_no_frame(
    hub: hubs.EventHub, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(hubs, "RECONNECT_SECONDS", (0.5,))
    one = reader()
    await hub.subscribe(one.mailbox, "run:a")
    await apublish("run:a", points(1))
    await one.until(lambda r: len(r.frames) == 1)

    await database_sync_to_async(_end_connections_of_the_hub)()
    await apublish("run:a", points(2))
    await one.until(lambda r: len(r.frames) == 2)  # by asking, or after LISTEN is back
    await asyncio.sleep(0.8)
    await apublish("run:a", points(3))
    await one.until(lambda r: len(r.frames) == 3)
    assert one.numbers() == [1, 2, 3]


async def test_who_has_left_gets_nothing_and_holds_nothing(hub: hubs.EventHub, reader: Readers) -> None:
    one, two = reader(), reader()
    await hub.subscribe(one.mailbox, "run:a")
    await hub.subscribe(two.mailbox, "run:a")
    hub.leave(one.mailbox)
    await apublish("run:a", points(1))
    await two.until(lambda r: r.frames)
    assert one.mailbox.subscriptions == {}
    hub.leave(two.mailbox)
    assert hub._feeds == {}


async def _until_fed(reader: Reader, seq: int) -> None:
    feed = reader.mailbox.subscriptions["run:a"]
    await eventually(lambda: feed.position >= seq, lambda: f"fed up to {seq}, now at {feed.position}")


def _end_connections_of_the_hub() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'oolong live stream' AND datname = current_database()"
        )
        assert cursor.fetchall()
