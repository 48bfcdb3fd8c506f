from __future__ import annotations

import threading
from datetime import timedelta

import psycopg
import pytest
from django.db import connection, transaction
from django.utils import timezone

from control_plane.core.models import LiveTopic, StreamFrame
from control_plane.core.stream import event_stream

PUBLISHERS = 8
FRAMES = 40


def test_outside_a_transaction_nothing_can_be_published(transactional_db: None) -> None:
    with pytest.raises(transaction.TransactionManagementError, match="run:a"):
        event_stream.publish("run:a", "status", {"status": "RUNNING"})


def test_numbers_start_at_one_and_every_topic_counts_for_itself(db: None) -> None:
    assert [event_stream.publish("run:a", "event", {"n": n}) for n in range(3)] == [1, 2, 3]
    assert event_stream.publish_many("run:b", [("event", {}), ("event", {})]) == 2
    assert event_stream.current_seq("run:a") == 3
    assert event_stream.current_seq("nobody was here") == 0


def test_topics_are_taken_in_one_order_and_the_pool_last(db: None) -> None:
    topics = ["run:a", "run:a:logs", "run:b", "runs:p", "pool"]
    told = event_stream.EventBatch()
    for topic in reversed(topics):
        told.add(topic, "event", {})
    assert list(told.publish()) == topics


def test_a_frame_that_was_rolled_back_leaves_no_hole(transactional_db: None) -> None:
    with transaction.atomic():
        event_stream.publish("run:a", "event", {"n": 1})
    with transaction.atomic():
        event_stream.publish("run:a", "event", {"n": "lost"})
        transaction.set_rollback(True)
    with transaction.atomic():
        assert event_stream.publish("run:a", "event", {"n": 2}) == 2
    assert list(StreamFrame.objects.order_by("seq").values_list("seq", "data")) == [
        (1, '{"n":1}'),
        (2, '{"n":2}'),
    ]


def test_eight_publishers_at_once_number_one_topic_without_holes_in_commit_order(
    transactional_db: None,
) -> None:
    def publish_often(name: int) -> None:
        try:
            for n in range(FRAMES):
                with transaction.atomic():
                    event_stream.publish("run:a", "event", {"publisher": name, "n": n})
        finally:
            connection.close()

    threads = [threading.Thread(target=publish_often, args=(name,)) for name in range(PUBLISHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)

    frames = StreamFrame.objects.filter(topic="run:a").order_by("seq")
    assert [frame.seq for frame in frames] == list(range(1, PUBLISHERS * FRAMES + 1))
    assert len({frame.data for frame in frames}) == PUBLISHERS * FRAMES
    for name in range(PUBLISHERS):
        own = [frame.data for frame in frames if f'"publisher":{name},' in frame.data]
        assert own == [f'{{"publisher":{name},"n":{n}}}' for n in range(FRAMES)]


def test_readers_are_notified_at_commit_and_not_before(transactional_db: None) -> None:
    settings = connection.settings_dict
    with psycopg.connect(
        dbname=settings["NAME"], user=settings["USER"], password=settings["PASSWORD"],
        host=settings["HOST"], port=settings["PORT"], autocommit=True,
    ) as listener:  # fmt: skip
        listener.execute(f"LISTEN {event_stream.CHANNEL}")
        with transaction.atomic():
            event_stream.publish("run:a", "event", {})
            assert list(listener.notifies(timeout=0.05)) == []
        assert [note.payload for note in listener.notifies(timeout=60, stop_after=1)] == ["run:a 1"]


def test_text_that_postgres_cannot_hold_as_jsonb_passes_through_a_frame(db: None) -> None:
    event_stream.publish("run:a", "log", {"text": "a\x00b"})
    assert StreamFrame.objects.get().data == '{"text":"a\\u0000b"}'


def _old_frames(topic: str, count: int, age: timedelta) -> None:
    StreamFrame.objects.bulk_create(
        StreamFrame(topic=topic, seq=seq, type="event", at=timezone.now() - age, data="{}")
        for seq in range(1, count + 1)
    )
    LiveTopic.objects.create(topic=topic, seq=count)


def test_pruning_keeps_the_newest_frames_and_the_last_hour(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_FRAMES", 10)
    _old_frames("run:old", 30, timedelta(hours=2))
    _old_frames("run:young", 30, timedelta(minutes=30))
    _old_frames("run:silent", 30, timedelta(days=8))

    assert event_stream.prune() == 20 + 30
    assert list(
        StreamFrame.objects.filter(topic="run:old").order_by("seq").values_list("seq", flat=True)
    ) == list(range(21, 31))
    assert StreamFrame.objects.filter(topic="run:young").count() == 30
    assert not StreamFrame.objects.filter(topic="run:silent").exists()
    assert event_stream.publish("run:silent", "event", {}) == 31
