"""Base of the HTTP servers with OpenAI's API: agent sessions and the playground."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from aiohttp import web

from gpu_agents.rollout.sessions.openai_chat import InvalidChatRequest, error_document
from oolong.system.http_listener import HttpListener

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ChatServer(ABC):
    """Listens on loopback. Subclasses add routes to `app`, authorize requests, and map their errors to responses."""

    def __init__(self, *, max_body_bytes: int) -> None:
        self.app = web.Application(client_max_size=max_body_bytes, middlewares=[self._middleware])
        self.port = 0
        self._listener = HttpListener(self.app)

    async def start(self, port: int) -> int:
        """Listen on loopback; port 0 takes a free one. Returns the port."""
        self.port = await self._listener.start("127.0.0.1", port)
        return self.port

    async def close(self) -> None:
        await self._listener.close()

    @abstractmethod
    def authorize(self, request: web.Request) -> None:
        """Raises HTTPUnauthorized."""

    def error_to_response(self, error: Exception) -> web.Response | None:
        """Map an error of a handler to a response; None for unexpected errors."""
        if isinstance(error, web.HTTPException):
            code = "unauthorized" if error.status == 401 else "http"
            return error_response(error.status, error.reason or "", code=code)
        if isinstance(error, InvalidChatRequest):
            return error_response(400, str(error), code=error.code, param=error.param)
        return None

    async def respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            self.authorize(request)
            return await handler(request)
        except Exception as error:
            response = self.error_to_response(error)
            if response is None:
                raise
            return response

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        return await self.respond(request, handler)


def error_response(
    status: int, message: str, *, code: str, param: str = "", kind: str = "invalid_request_error"
) -> web.Response:
    return web.json_response(error_document(message, kind=kind, code=code, param=param), status=status)
