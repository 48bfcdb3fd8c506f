"""A client that follows one topic over /ws/v1 and comes back after every lost connection, as the dashboard does."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from websockets.exceptions import InvalidMessage, InvalidStatus, WebSocketException
from websockets.sync.client import connect

LOST = (OSError, WebSocketException, InvalidMessage, InvalidStatus, TimeoutError)


@dataclass
class Follower:
    url: str  # ws://…/ws/v1
    token: str
    topic: str
    frames: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=20)

    @property
    def last(self) -> int:
        return self.frames[-1]["seq"] if self.frames else 0

    def points(self) -> Counter[tuple[str, str, int]]:
        return Counter(
            (frame["data"]["source"], frame["data"]["axis"], frame["data"]["x"])
            for frame in self.frames
            if frame["type"] == "points"
        )

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow_once()
            except LOST:
                time.sleep(0.1)

    def _follow_once(self) -> None:
        with connect(self.url, open_timeout=5, proxy=None) as socket:
            socket.send(json.dumps({"op": "auth", "token": self.token}))
            socket.send(json.dumps({"op": "subscribe", "topic": self.topic, "after_seq": self.last}))
            self.connections += 1
            while not self._stop.is_set():
                try:
                    frame = json.loads(socket.recv(timeout=0.5))
                except TimeoutError:
                    continue
                if frame["seq"] is not None and frame["type"] != "subscribed":
                    self.frames.append(frame)
