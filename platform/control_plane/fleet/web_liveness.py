"""Records every few seconds that the web process is alive, so that nodes are not blamed for its outages."""

from __future__ import annotations

import logging
import threading

from django.db import DatabaseError, connection

from control_plane.core.infra import clock
from control_plane.fleet.models import Watch

log = logging.getLogger(__name__)
PERIOD_SECONDS = 3.0


def start_liveness_thread() -> threading.Thread:
    thread = threading.Thread(
        target=_record_periodically, args=(threading.Event(),), name="web-liveness", daemon=True
    )
    thread.start()
    return thread


def record_alive() -> None:
    Watch.objects.update_or_create(name="pool", defaults={"receiver_at": clock.now()})


def _record_periodically(stop: threading.Event) -> None:
    while not stop.wait(PERIOD_SECONDS):
        try:
            record_alive()
        except DatabaseError as error:
            log.warning("cannot record that this process is alive: %s", error)
        finally:
            connection.close()
