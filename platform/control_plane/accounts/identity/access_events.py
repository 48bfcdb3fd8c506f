"""What open streams are told, so that whoever loses power loses it there too, within seconds."""

from __future__ import annotations

from collections.abc import Iterable

from control_plane.core.stream import event_stream

TOPIC = "access"  # internal: no caller can subscribe to it


def publish_access_change(user_ids: Iterable[str]) -> None:
    """These users may have lost something: a token, a role, a session; or these nodes their credential. Call inside the
    transaction of the change."""
    event_stream.publish_many(TOPIC, [("event", {"user": user_id}) for user_id in sorted(set(user_ids))])
