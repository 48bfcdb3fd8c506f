"""A deadline for a whole exchange. A read limit alone is none: a byte before it ends renews it, headers or body."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any


class Cut:
    """Ends a connection under the hands of whoever reads it."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self._connection: socket.socket | None = None
        self._lock = threading.Lock()

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """httpcore's trace: a second handle of the connection, which stays good when TLS is put around the first."""
        if event == "connection.connect_tcp.complete":
            with self._lock:
                self._forget()  # of the exchange before, which led on here
                self._connection = info["return_value"].get_extra_info("socket").dup()
            if self.done.is_set():
                self.now()

    def now(self) -> None:
        self.done.set()
        with self._lock:
            if self._connection is not None:
                with suppress(OSError):  # the other side has ended it already
                    self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def cut_after(seconds: float) -> Iterator[Cut]:
    """`extensions={"trace": cut.watch}` puts a request under it; `cut.done` says whether it came to that."""
    cut = Cut()
    timer = threading.Timer(seconds, cut.now)
    timer.daemon = True
    timer.start()
    try:
        yield cut
    finally:
        timer.cancel()
        cut.close()
