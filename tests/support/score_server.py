"""A real HTTP server of scores and judgements in the test's process, which answers as its script says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int = 200
    document: Any = None
    raw: bytes | None = None  # in place of the document
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False  # close the connection without an answer


@dataclass(frozen=True)
class Seen:
    path: str
    headers: dict[str, str]
    document: Any
    at: float  # monotonic


Script = Callable[[Seen], Reply]


class ScoreServer:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: list[Seen] = []
        self.released = threading.Event()  # set when the test ends, so that hanging answers end
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator[ScoreServer]:
        thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.01), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.released.set()
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                seen = Seen(self.path, dict(self.headers.items()), json.loads(body), time.monotonic())
                with outer._lock:
                    outer.seen.append(seen)
                    outer._now += 1
                    outer.most_at_once = max(outer.most_at_once, outer._now)
                try:
                    self._answer(outer.script(seen))
                finally:
                    with outer._lock:
                        outer._now -= 1

            def _answer(self, reply: Reply) -> None:
                if reply.drop:
                    self.close_connection = True
                    return
                body = reply.raw if reply.raw is not None else json.dumps(reply.document).encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except ConnectionError:
                    pass  # the client had enough of it

            def log_message(self, *_: object) -> None:
                pass

        return Handler


def scores(seen: Seen, score_of: Callable[[dict[str, Any]], float]) -> Reply:
    """Version 1, each id once."""
    items = [{"id": item["id"], "score": score_of(item)} for item in seen.document["items"]]
    return Reply(document={"version": 1, "items": items})


def judgement(text: str, *, finish_reason: str = "stop", tokens: tuple[int, int] = (10, 3)) -> Reply:
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return Reply(document={"object": "chat.completion", "choices": [choice], "usage": usage})
