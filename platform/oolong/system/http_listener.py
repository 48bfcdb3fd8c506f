"""An aiohttp application that listens on one address or several."""

from __future__ import annotations

import ssl

from aiohttp import web


class HttpListener:
    """Serves an application until `close`. A request whose client disconnects is cancelled: the long poll of a lost
    worker must not make a claim that nobody receives, and an abandoned completion must leave the engine."""

    def __init__(self, app: web.Application) -> None:
        self._app = app
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, context: ssl.SSLContext | None = None) -> int:
        """Listen, with TLS if a context is given; port 0 takes a free one. Returns the port."""
        self._runner = web.AppRunner(
            self._app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=context).start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def listen_also(self, host: str, port: int, context: ssl.SSLContext) -> None:
        """Listen with TLS on another address, after `start`."""
        assert self._runner is not None, "start first"
        await web.TCPSite(self._runner, host, port, ssl_context=context).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
