"""The playground over HTTP, behind the relay:

    GET  /playground                    whether the engine serves, and when the slot is given back
    POST /playground/chat/completions   OpenAI's, also as a stream
    GET  /playground/models
    POST /playground/score              {"messages": […], "completion": "…", "answer": "…"}
    POST /playground/keepalive

Every request but the first counts as use. The bearer is the attempt's token: the relay has checked the user's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web

from gpu_agents.playground.chat import ChatRefused, engine_request, error_document
from gpu_agents.rollout.chat_template import ChatTemplate
from oolong.contracts.rollout import ScoreReply, ScoreRequest
from oolong.system.rpc import RpcClient, RpcError, RpcUnavailable, has_token
from oolong.untrusted import parse_json

log = logging.getLogger(__name__)

MOST_BYTES = 1024 * 1024
RETRY_SECONDS = 3
SCORE_SECONDS = 120.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Engine:
    """Where the engine is, once it serves."""

    def __init__(self, port: int, api_key: str) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/chat/completions"
        self.headers = {"Authorization": f"Bearer {api_key}"}
        self.serves = False


class PlaygroundServer:
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
        self._app = web.Application(client_max_size=MOST_BYTES, middlewares=[self._judge])
        self._app.router.add_get("/playground", self._show)
        self._app.router.add_post("/playground/chat/completions", self._chat)
        self._app.router.add_get("/playground/models", self._models)
        self._app.router.add_post("/playground/score", self._score)
        self._app.router.add_post("/playground/keepalive", self._show)
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None

    async def start(self, port: int) -> int:
        """Listen on loopback; port 0 takes a free one. Returns the port."""
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=10))
        # Who hangs up must not leave a completion in the engine.
        self._runner = web.AppRunner(
            self._app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        if self._http is not None:
            await self._http.close()

    def engine_serves(self) -> None:
        """The time of its boot is nobody's idleness."""
        self._engine.serves = True
        self._used_at = self._clock()

    @property
    def idle_left_seconds(self) -> float:
        """Until the slot is given back; all of it while somebody is served or the engine boots."""
        if self._open_requests or not self._engine.serves:
            return self._idle_seconds
        return self._idle_seconds - (self._clock() - self._used_at)

    # --- inside -----------------------------------------------------------------------------------------

    @web.middleware
    async def _judge(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not has_token(request.headers.get("Authorization", ""), self._token):
            return _error(401, "the attempt's token is missing or wrong", code="unauthorized")
        looks_only = request.method == "GET" and request.path == "/playground"
        if not looks_only:
            self._open_requests += 1
        try:
            return await handler(request)
        except web.HTTPException as error:
            return _error(error.status, error.reason or "", code="http")
        except ChatRefused as error:
            return _error(400, str(error), code="invalid_value", param=error.param)
        except aiohttp.ClientError as error:
            return _error(502, f"the engine did not answer: {error}", code="engine_error")
        finally:
            if not looks_only:
                self._open_requests -= 1
                self._used_at = self._clock()

    async def _show(self, request: web.Request) -> web.StreamResponse:
        document = {
            "ready": self._engine.serves,
            "idle_seconds": self._idle_seconds,
            "released_in_seconds": round(self.idle_left_seconds, 1),
            "scores": self._reward is not None,
        }
        return web.json_response(document)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"object": "list", "data": [{"id": self._run_id, "object": "model"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = engine_request(await request.read(), model=self._run_id)
        if not self._engine.serves:
            return _booting()
        assert self._http is not None
        async with self._http.post(self._engine.url, json=body, headers=self._engine.headers) as answer:
            kind = answer.content_type
            if kind != "text/event-stream":
                return web.Response(status=answer.status, body=await answer.read(), content_type=kind)
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": kind})
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response

    async def _score(self, request: web.Request) -> web.StreamResponse:
        if self._reward is None:
            return _error(409, "this playground was made without a reward", code="no_reward")
        try:
            given: Any = parse_json(await request.read())
            prompt = self._template.render(given["messages"])
            asked = ScoreRequest(
                prompt=prompt,
                completion=str(given["completion"]),
                answer=str(given.get("answer", "")),
                finish_reason="stop",
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ChatRefused("", f"a score needs messages, completion and answer: {error!r}") from error
        try:
            reply = await self._reward.call("score", asked, ScoreReply, timeout=SCORE_SECONDS)
        except (RpcError, RpcUnavailable) as error:
            return _error(502, f"the reward service did not answer: {error}", code="reward_error")
        if reply.status != "ok":
            return _error(422, reply.message or "the reward gave no score", code="no_score")
        return web.json_response(
            {"score": reply.score, "parts": reply.parts, "verdict": reply.verdict, "seconds": reply.seconds}
        )


def _booting() -> web.Response:
    response = _error(503, "the engine is starting; try again", code="starting")
    response.headers["Retry-After"] = str(RETRY_SECONDS)
    return response


def _error(status: int, message: str, *, code: str, param: str = "") -> web.Response:
    return web.json_response(error_document(message, code=code, param=param), status=status)
