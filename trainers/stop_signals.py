"""SIGTERM and SIGINT as an event that the train loop checks at step boundaries."""

from __future__ import annotations

import signal
import threading


def stop_event_on_signals() -> threading.Event:
    """Install handlers for SIGTERM and SIGINT, which torchrun forwards to every rank, and return the event they set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
