"""The web process says every few seconds that it lives, so that its absence is not blamed on the nodes."""

from __future__ import annotations

import logging
import threading

from django.db import DatabaseError, connection

from control_plane.core.infra import clock
from control_plane.fleet.models import Watch

log = logging.getLogger(__name__)
PERIOD_SECONDS = 3.0


def start_receiver_pulse() -> threading.Thread:
    thread = threading.Thread(target=_pulse, args=(threading.Event(),), name="receiver-pulse", daemon=True)
    thread.start()
    return thread


def note_alive() -> None:
    Watch.objects.update_or_create(name="pool", defaults={"receiver_at": clock.now()})


def _pulse(stop: threading.Event) -> None:
    while not stop.wait(PERIOD_SECONDS):
        try:
            note_alive()
        except DatabaseError as error:
            log.warning("cannot note that this process lives: %s", error)
        finally:
            connection.close()
