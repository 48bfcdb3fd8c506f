from __future__ import annotations

from celery import shared_task

from control_plane.common import live


@shared_task(ignore_result=True)
def prune_frames() -> None:
    live.prune()
