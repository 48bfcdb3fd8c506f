"""The live stream's writing side: frames with a number per topic, stored together with the data they announce.

`publish` belongs to the caller's transaction: the frame exists exactly when the data does, its number is the
next one of its topic, and numbers follow commit order without holes. That is what lets a reader replay from
any number and go on live (`common.hub`).

Lock order. A topic's row stays locked until the caller commits, so publish late, and lock before it whatever
else you lock (a Run row, say). Where one transaction publishes to several topics, do it in this order:
`run:<id>`, `run:<id>:logs`, `runs`, `pool`. Transactions that keep to it cannot deadlock on topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import msgspec
from django.db import connection, transaction
from django.utils import timezone

from control_plane.core.infra.pg_arrays import Int8Array, TextArray, execute
from control_plane.core.models import LiveTopic

CHANNEL = "oolong_live"

KEEP_FRAMES = 10_000
KEEP_FOR = timedelta(hours=1)
FORGET_SILENT_TOPICS_AFTER = timedelta(days=7)

# Of these the newest frame per subject replaces the older ones; all other types count one by one.
NEWEST_WINS = frozenset({"state", "status", "progress"})

_PUBLISH = """
WITH asked AS (
    SELECT topic, count FROM unnest(%(topics)s, %(counts)s) WITH ORDINALITY AS a(topic, count, n) ORDER BY n
), counter AS (
    INSERT INTO core_livetopic AS t (topic, seq) SELECT topic, count FROM asked
    ON CONFLICT (topic) DO UPDATE SET seq = t.seq + EXCLUDED.seq
    RETURNING topic, seq
), stored AS (
    INSERT INTO core_streamframe (topic, seq, type, replaces, at, data)
    SELECT f.topic, counter.seq - asked.count + f.position, f.type, f.replaces, clock_timestamp(), f.data
    FROM unnest(%(of)s, %(positions)s, %(types)s, %(replaces)s, %(data)s)
         WITH ORDINALITY AS f(topic, position, type, replaces, data, n)
    JOIN counter USING (topic) JOIN asked USING (topic) ORDER BY f.n
)
SELECT topic, seq, pg_notify(%(channel)s, topic || ' ' || seq) FROM counter
"""


_TOPICS_TO_PRUNE = """
SELECT t.topic, t.seq FROM core_livetopic t
WHERE EXISTS (SELECT FROM core_streamframe f WHERE f.topic = t.topic AND f.seq <= t.seq - %(keep)s)
   OR EXISTS (SELECT FROM core_streamframe f WHERE f.topic = t.topic AND f.seq = t.seq AND f.at < %(silent)s)
"""
# The cut is a number, not a time: what is left must be an unbroken tail.
_PRUNE = """
DELETE FROM core_streamframe WHERE topic = %(topic)s AND seq <= greatest(
    (SELECT max(seq) FROM core_streamframe WHERE topic = %(topic)s AND seq <= %(beyond)s AND at < %(old)s),
    (SELECT max(seq) FROM core_streamframe WHERE topic = %(topic)s HAVING max(at) < %(silent)s))
"""


def publish(topic: str, type: str, data: Mapping[str, Any]) -> int:
    """Add one frame to a topic and wake its readers when the caller's transaction commits.

    `type` is one of points, histogram, document, event, status, progress, checkpoint, log, trajectory, alert.
    Returns the frame's sequence number. Raises TransactionManagementError outside `transaction.atomic`.
    """
    return publish_many(topic, [(type, data)])


def publish_many(topic: str, frames: Iterable[tuple[str, Mapping[str, Any]]]) -> int:
    """Add frames to one topic in the given order, with one lock and one wake-up; returns the last number."""
    told = EventBatch()
    for type, data in frames:
        told.add(topic, type, data)
    return told.publish().get(topic) or current_seq(topic)


class EventBatch:
    """Frames of several topics that are published together, the topics in the order that all writers keep to."""

    def __init__(self) -> None:
        self._topics: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}

    def add(self, topic: str, type: str, data: Mapping[str, Any]) -> None:
        self._topics.setdefault(topic, []).append((type, data))

    def publish(self) -> dict[str, int]:
        """Publish what was added since the last time, in one statement; the last number of each topic."""
        if not connection.in_atomic_block:
            raise transaction.TransactionManagementError(
                f"publish to {sorted(self._topics)} outside a transaction: a frame is stored together with what it "
                "announces; call it inside transaction.atomic()"
            )
        # By the alphabet: run:<id>, run:<id>:logs, runs:<project>; and the pool last.
        topics = sorted(self._topics.items(), key=lambda told: (told[0] == "pool", told[0]))
        self._topics = {}
        if not topics:
            return {}
        frames = [
            (topic.encode(), position, type, data)
            for topic, told in topics
            for position, (type, data) in enumerate(told, 1)
        ]
        done = execute(
            _PUBLISH,
            {
                "topics": TextArray([topic.encode() for topic, _ in topics]),
                "counts": Int8Array([len(told) for _, told in topics]),
                "of": TextArray([topic for topic, *_ in frames]),
                "positions": Int8Array([position for _, position, *_ in frames]),
                "types": TextArray([type.encode() for *_, type, _ in frames]),
                "replaces": TextArray([_replaces(type, data).encode() for *_, type, data in frames]),
                "data": TextArray([msgspec.json.encode(data) for *_, data in frames]),
                "channel": CHANNEL,
            },
        )
        return {topic: int(seq) for topic, seq, _ in done.fetchall()}


def current_seq(topic: str) -> int:
    """The last committed number of a topic, 0 when nothing was ever published on it."""
    return LiveTopic.objects.filter(topic=topic).values_list("seq", flat=True).first() or 0


def prune() -> int:
    """Drop frames that are both older than KEEP_FOR and beyond the newest KEEP_FRAMES of their topic.

    A topic silent for FORGET_SILENT_TOPICS_AFTER loses all its frames; its counter stays, so a reader that
    comes back sees a gap and never a number twice. Returns how many frames went.
    """
    now = timezone.now()
    silent = now - FORGET_SILENT_TOPICS_AFTER
    dropped = 0
    with connection.cursor() as cursor:
        cursor.execute(_TOPICS_TO_PRUNE, {"keep": KEEP_FRAMES, "silent": silent})
        for topic, seq in cursor.fetchall():
            values = {"topic": topic, "beyond": seq - KEEP_FRAMES, "old": now - KEEP_FOR, "silent": silent}
            cursor.execute(_PRUNE, values)
            dropped += cursor.rowcount
    return dropped


def _replaces(type: str, data: Mapping[str, Any]) -> str:
    if type not in NEWEST_WINS:
        return ""
    return f"{type}:{data.get('name') or data.get('id') or ''}"[:200]
