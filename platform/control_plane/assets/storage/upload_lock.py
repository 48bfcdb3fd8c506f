"""The end of an upload in parts: joined, hashed and checked, by one request at a time.

That takes many minutes of a large model, longer than a client waits. One that comes again must neither begin the same
work beside the first nor hold a database connection while it waits: it gets an error that says to come later, and
finds the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from control_plane.core.api.errors import Problem
from control_plane.core.infra.database import give_back_connection
from control_plane.core.infra.locks import LockClass, session_lock

AGAIN_SECONDS = 10


@contextmanager
def exclusive(upload_id: str) -> Iterator[None]:
    """503 `completion_in_progress`, with Retry-After, while another request is at it. Gone with its process."""
    with session_lock(LockClass.COMPLETION, upload_id) as mine:
        if not mine:
            raise Problem(
                503, "completion_in_progress",
                f"upload {upload_id} is being put together by an earlier request; ask again in {AGAIN_SECONDS} s",
                headers={"Retry-After": str(AGAIN_SECONDS)},
            )  # fmt: skip
        give_back_connection()
        yield
