"""Serves published weights to engines on other nodes.

Over TLS, with the attempt's token, and from a thread of its own: a transfer of gigabytes must not delay the controller.
"""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

from aiohttp import web

from oolong.contracts.attempt import PeerListenerFile
from oolong.system.http_listener import HttpListener
from oolong.system.pinned_tls import server_context
from oolong.system.rpc import has_token

VERSION = re.compile(r"v\d{8}")
FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
CHUNK_BYTES = 1024 * 1024


class WeightServer:
    """GET /v00000012/model.safetensors, with ranges. Only complete versions: others have another name."""

    def __init__(self, directory: Path, *, token: str) -> None:
        self._directory = directory
        self._token = token
        app = web.Application()
        app.router.add_get("/{version}/{file}", self._serve)
        self._listener = HttpListener(app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="weight server", daemon=True)

    def start(self, listener: PeerListenerFile) -> int:
        """Listen; port 0 takes a free one. Returns the port."""
        self._thread.start()
        context = server_context(listener.certificate, listener.private_key)
        started = self._listener.start(listener.address, listener.weights_port, context)
        return asyncio.run_coroutine_threadsafe(started, self._loop).result()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._listener.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        if not has_token(request.headers.get("Authorization", ""), self._token):
            raise web.HTTPUnauthorized(text="the attempt's token is missing or wrong")
        version, file = request.match_info["version"], request.match_info["file"]
        if not (VERSION.fullmatch(version) and FILE.fullmatch(file)):
            raise web.HTTPNotFound(text=f"{version}/{file} is no file of a version")
        path = self._directory / version / file
        if not path.is_file():
            raise web.HTTPNotFound(
                text=f"there is no {version}/{file}: the version was deleted or never published"
            )
        return web.FileResponse(path, chunk_size=CHUNK_BYTES)
