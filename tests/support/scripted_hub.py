"""A small hub with the addresses of a real one: a revision's files, and each file with redirects and ranges."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" * 6 + "abcd"


@dataclass
class ScriptedHub:
    """`files` of the one model acme/tiny; weights lie behind a redirect, as large files do."""

    files: dict[str, bytes]
    token: str = ""  # needed when given
    gated: bool = False
    break_after: int | None = None  # bytes after which the first answer of each file of weights breaks off
    wrong_sha256: bool = False
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # path, Range, Authorization
    url: str = ""
    _broken: set[str] = field(default_factory=set)

    def siblings(self) -> list[dict[str, Any]]:
        return [self._described(name, data) for name, data in self.files.items()]

    def _described(self, name: str, data: bytes) -> dict[str, Any]:
        git = hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
        entry: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git}
        if name.endswith((".safetensors", ".bin")):
            sha256 = "0" * 64 if self.wrong_sha256 else hashlib.sha256(data).hexdigest()
            entry["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
        return entry

    def breaks(self, name: str) -> int | None:
        """The first answer only."""
        if self.break_after is None or name in self._broken or not name.endswith(".safetensors"):
            return None
        self._broken.add(name)
        return self.break_after


@contextmanager
def serving(hub: ScriptedHub) -> Iterator[ScriptedHub]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, query = unquote(urlsplit(self.path).path), parse_qs(urlsplit(self.path).query)
            sent = self.headers.get("Authorization", "")
            hub.asked.append((path, self.headers.get("Range", ""), sent))
            if path.startswith("/storage/"):
                return self._file(path.removeprefix("/storage/"))
            if hub.gated and not hub.token:
                return self._plain(403, b"gated", {"X-Error-Code": "GatedRepo"})
            if hub.token and sent != f"Bearer {hub.token}":
                return self._plain(401, b"who are you", {"X-Error-Code": "RepoNotFound"})
            if path.startswith("/api/models/acme/tiny/revision/"):
                if path.rpartition("/")[2] not in ("main", COMMIT):
                    return self._plain(404, b"", {"X-Error-Code": "RevisionNotFound"})
                assert query == {"blobs": ["true"]}
                document = {"id": "acme/tiny", "sha": COMMIT, "siblings": hub.siblings(), "gated": hub.gated}
                return self._plain(200, json.dumps(document).encode(), {"Content-Type": "application/json"})
            name = path.removeprefix(f"/acme/tiny/resolve/{COMMIT}/")
            if name not in hub.files:
                return self._plain(404, b"", {"X-Error-Code": "EntryNotFound"})
            if name.endswith(".safetensors"):
                other = hub.url.replace("127.0.0.1", "localhost")  # another host than the hub's
                return self._plain(302, b"", {"Location": f"{other}/storage/{name}"})
            return self._file(name)

        def _file(self, name: str) -> None:
            data, first = hub.files[name], 0
            if wanted := self.headers.get("Range"):
                first = int(wanted.removeprefix("bytes=").rstrip("-"))
            body = data[first:]
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(body)))
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
            self.end_headers()
            cut = hub.breaks(name)
            self.wfile.write(body[:cut])
            if cut is not None:
                self.close_connection = True

        def _plain(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
