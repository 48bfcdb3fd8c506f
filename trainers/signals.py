"""A wish to stop, noted when it comes and acted on at the next step boundary."""

from __future__ import annotations

import signal
import threading


def stop_on_signals() -> threading.Event:
    """Set by SIGTERM or SIGINT, which torchrun passes on to every rank."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
