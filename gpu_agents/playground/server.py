"""The playground over HTTP, behind the tunnel:

    GET  /playground                    whether the engine is ready, and when the slot is released
    POST /playground/chat/completions   OpenAI's chat completions, also as a stream
    GET  /playground/models
    POST /playground/score              {"messages": […], "completion": "…", "answer": "…"}
    POST /playground/keepalive

Every request except the first kind counts as use. The bearer token is the attempt's; the control plane has
authorized the user.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import web

from gpu_agents.chat_server import ChatServer, Handler, error_response
from gpu_agents.playground.chat import engine_request
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.sessions.openai_chat import InvalidChatRequest
from oolong.contracts.rollout import ScoreReply, ScoreRequest
from oolong.system.rpc import RpcClient, RpcError, RpcUnavailable, has_token
from oolong.untrusted import parse_json

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 1024 * 1024
RETRY_SECONDS = 3
SCORE_SECONDS = 120.0


class Engine:
    """The engine's address, and whether it is ready."""

    def __init__(self, port: int, api_key: str) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self.headers = {"Authorization": f"Bearer {api_key}"}
        self.ready = False


class PlaygroundServer(ChatServer):
    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        *,
        run_id: str,
        token: str,
        idle_seconds: float,
        reward: RpcClient | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine, self._template, self._reward = engine, template, reward
        self._run_id, self._token = run_id, token
        self._idle_seconds, self._clock = idle_seconds, clock
        self._used_at = clock()
        self._open_requests = 0
        super().__init__(max_body_bytes=MAX_BODY_BYTES)
        self.app.router.add_get("/playground", self._show)
        self.app.router.add_post("/playground/chat/completions", self._chat)
        self.app.router.add_get("/playground/models", self._models)
        self.app.router.add_post("/playground/score", self._score)
        self.app.router.add_post("/playground/keepalive", self._show)
        self._http: aiohttp.ClientSession | None = None

    async def start(self, port: int) -> int:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=10))
        return await super().start(port)

    async def close(self) -> None:
        await super().close()
        if self._http is not None:
            await self._http.close()

    def set_engine_ready(self) -> None:
        """Call it once the engine is ready. Boot time does not count toward the idle timeout."""
        self._engine.ready = True
        self._used_at = self._clock()

    @property
    def idle_left_seconds(self) -> float:
        """Seconds until the slot is released; the whole timeout during requests and while the engine boots."""
        if self._open_requests or not self._engine.ready:
            return self._idle_seconds
        return self._idle_seconds - (self._clock() - self._used_at)

    def authorize(self, request: web.Request) -> None:
        if not has_token(request.headers.get("Authorization", ""), self._token):
            raise web.HTTPUnauthorized(reason="the attempt's token is missing or wrong")

    async def respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        is_use = request.method != "GET" or request.path != "/playground"
        return await super().respond(request, self._track_use(handler) if is_use else handler)

    def error_to_response(self, error: Exception) -> web.Response | None:
        if isinstance(error, aiohttp.ClientError):
            return error_response(502, f"the engine did not answer: {error}", code="engine_error")
        return super().error_to_response(error)

    def _track_use(self, handler: Handler) -> Handler:
        async def tracked(request: web.Request) -> web.StreamResponse:
            self._open_requests += 1
            try:
                return await handler(request)
            finally:
                self._open_requests -= 1
                self._used_at = self._clock()

        return tracked

    async def _show(self, request: web.Request) -> web.StreamResponse:
        state = {
            "ready": self._engine.ready,
            "idle_seconds": self._idle_seconds,
            "released_in_seconds": round(self.idle_left_seconds, 1),
            "scores": self._reward is not None,
        }
        return web.json_response(state)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": self._run_id, "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = engine_request(await request.read(), model=self._run_id)
        if not self._engine.ready:
            return _engine_booting()
        assert self._http is not None
        async with self._http.post(self._engine.url, json=body, headers=self._engine.headers) as answer:
            kind = answer.content_type
            if kind != "text/event-stream":
                return web.Response(status=answer.status, body=await answer.read(), content_type=kind)
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": kind})
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _score(self, request: web.Request) -> web.StreamResponse:
        if self._reward is None:
            return error_response(409, "this playground has no reward", code="no_reward")
        try:
            body: Any = parse_json(await request.read())
            prompt = self._template.render(body["messages"])
            score_request = ScoreRequest(
                prompt=prompt,
                completion=str(body["completion"]),
                answer=str(body.get("answer", "")),
                finish_reason="stop",
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidChatRequest(
                "", f"a score needs messages, completion and answer: {error!r}"
            ) from error
        try:
            reply = await self._reward.call("score", score_request, ScoreReply, timeout=SCORE_SECONDS)
        except (RpcError, RpcUnavailable) as error:
            return error_response(502, f"the reward service did not answer: {error}", code="reward_error")
        if reply.status != "ok":
            return error_response(422, reply.message or "the reward gave no score", code="no_score")
        return web.json_response(
            {"score": reply.score, "parts": reply.parts, "result": reply.result, "seconds": reply.seconds}
        )


def _engine_booting() -> web.Response:
    response = error_response(503, "the engine is starting; try again", code="starting")
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response
