"""Sessions over HTTP: on loopback for agents on this node, and through the tunnel for all others.

    POST /sessions                              open a session; 429 with the gate's reason while it is closed
    GET  /sessions/{id}                         its status
    *    /sessions/{id}/v1/chat/completions     OpenAI's chat completions, also as a stream
    GET  /sessions/{id}/v1/models
    PUT  /sessions/{id}/reward                  {"reward": 1.0}
    POST /sessions/{id}/end                     {"reward": 1.0}, {"discard": true} or {}

The bearer token is the attempt's (the tunnel has authenticated the user), or the session's own key.
"""

from __future__ import annotations

import json
import logging
import math
import time
import uuid
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gpu_agents.chat_server import ChatServer, Handler, error_response
from gpu_agents.rollout.engines.errors import EngineError
from gpu_agents.rollout.sessions.manager import NoCapacity, SessionConflict, SessionManager, SessionNotFound
from gpu_agents.rollout.sessions.openai_chat import (
    ChatRequest,
    InvalidChatRequest,
    chunk_document,
    completion_document,
    error_document,
    parse_object,
    parse_request,
)
from gpu_agents.rollout.sessions.session import Completed, session_status
from gpu_agents.rollout.worker.episode import Interrupted
from oolong.system.rpc import has_token
from oolong.workflow import WorkflowFailed

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 4 * 1024 * 1024
RETRY_SECONDS = 1
RELAYED = "oolong-relay"


@dataclass(frozen=True, kw_only=True)
class SessionServerConfig:
    """What the server needs to know about the run."""

    run_id: str
    token: str  # of the attempt
    temperature: float
    max_new_tokens: int
    timeout_seconds: float

    @property
    def model(self) -> str:
        return self.run_id


class SessionServer(ChatServer):
    def __init__(self, manager: SessionManager, config: SessionServerConfig) -> None:
        super().__init__(max_body_bytes=MAX_BODY_BYTES)
        self._manager = manager
        self._config = config
        self.app.router.add_post("/sessions", self._open)
        self.app.router.add_get("/sessions/{id}", self._show)
        self.app.router.add_put("/sessions/{id}/reward", self._reward)
        self.app.router.add_post("/sessions/{id}/end", self._end)
        self.app.router.add_post("/sessions/{id}/v1/chat/completions", self._chat)
        self.app.router.add_get("/sessions/{id}/v1/models", self._models)

    # --- authorization and errors --------------------------------------------------------------------------

    async def respond(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        relayed = RELAYED in request.headers
        if relayed:
            self._manager.counts["relay_requests"] += 1
            self._manager.counts["relay_bytes"] += request.content_length or 0
        response = await super().respond(request, handler)
        if relayed and isinstance(response, web.Response) and response.body:
            self._manager.counts["relay_bytes"] += len(response.body)  # type: ignore[arg-type]
        return response

    def error_to_response(self, error: Exception) -> web.Response | None:
        match error:
            case NoCapacity():
                return self._no_capacity(error)
            case SessionNotFound():
                return error_response(404, str(error), code="not_found")
            case SessionConflict():
                status = 410 if error.code == "session_dropped" else 409
                return error_response(status, str(error), code=error.code)
            case Interrupted():
                message = "the session was dropped while the policy sampled"
                return error_response(410, message, code="session_dropped")
            case EngineError() | WorkflowFailed():
                return error_response(502, f"the engine did not finish: {error}", code="engine_error")
        return super().error_to_response(error)

    def authorize(self, request: web.Request) -> None:
        bearer = request.headers.get("Authorization", "")
        accepted = [self._config.token]
        identity = request.match_info.get("id")
        if identity is not None:
            try:
                accepted.append(self._manager.find(identity)[0].key)
            except SessionNotFound:
                log.debug("no session %s", identity)  # reported only to callers with the attempt's token
        if not any(has_token(bearer, token) for token in accepted):
            raise web.HTTPUnauthorized(reason="send the session's api_key as bearer token")

    def _no_capacity(self, error: NoCapacity) -> web.Response:
        if error.refusal == "run_ending":
            return error_response(410, "the run needs no more rollouts", code="run_ending")
        message = f"no group may start now ({error.refusal}); retry after {RETRY_SECONDS} s"
        response = error_response(429, message, code=error.refusal, kind="admission_refused")
        response.headers["Retry-After"] = str(RETRY_SECONDS)
        return response

    # --- sessions -------------------------------------------------------------------------------------------

    async def _open(self, request: web.Request) -> web.Response:
        opened = await self._manager.open()
        identity = opened.session.session_id
        relayed = RELAYED in request.headers
        host = f"/api/v1/runs/{self._config.run_id}" if relayed else f"http://127.0.0.1:{self.port}"
        document = {
            "id": identity,
            "run_id": self._config.run_id,
            "base_url": f"{host}/sessions/{identity}/v1",
            "api_key": ""
            if relayed
            else opened.session.key,  # through the tunnel the project token is the key
            "model": self._config.model,
            "group_id": opened.group.claimed.group_id,
            "member": opened.session.rollout_index,
            "row": opened.row.row,
            "messages": opened.row.messages,
            "prompt": opened.group.prompt.text,
            "answer": opened.row.answer,
            "temperature": self._config.temperature,
            "max_tokens": self._config.max_new_tokens,
            "timeout_seconds": self._config.timeout_seconds,
        }
        return web.json_response(document, status=201)

    async def _show(self, request: web.Request) -> web.Response:
        session, _ = self._manager.find(request.match_info["id"])
        return web.json_response(session_status(session))

    async def _reward(self, request: web.Request) -> web.Response:
        document = parse_object(await request.read() or b"{}")
        return web.json_response(
            session_status(
                self._manager.set_reward(request.match_info["id"], _number(document.get("reward")))
            )
        )

    async def _end(self, request: web.Request) -> web.Response:
        identity = request.match_info["id"]
        document = parse_object(await request.read() or b"{}")
        if document.get("discard"):
            return web.json_response(session_status(self._manager.discard(identity)))
        if document.get("reward") is not None:
            self._manager.set_reward(identity, _number(document["reward"]))
        return web.json_response(session_status(self._manager.end(identity)))

    # --- OpenAI's API --------------------------------------------------------------------------------------

    async def _models(self, request: web.Request) -> web.Response:
        self._manager.find(request.match_info["id"])
        model = {"id": self._config.model, "object": "model", "created": 0, "owned_by": "oolong"}
        return web.json_response({"object": "list", "data": [model]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        chat = parse_request(await request.read(), temperature=self._config.temperature)
        identity = request.match_info["id"]
        if chat.stream:
            return await self._stream(request, identity, chat)
        completed = await self._manager.complete(identity, chat)
        document = completion_document(
            _completion_id(),
            created=int(time.time()),
            model=self._config.model,
            reply=completed.reply,
            usage=_usage(completed),
            extension=_extension(identity, completed),
        )
        return web.json_response(document)

    async def _stream(self, request: web.Request, identity: str, chat: ChatRequest) -> web.StreamResponse:
        """Stream the completion. Headers are sent with the first text, so earlier errors keep their own status."""
        writer = _EventWriter(request, self._config.model)
        sent = 0

        async def on_text(text: str) -> None:
            nonlocal sent
            if not chat.tools:  # the text may still become a tool call
                sent += len(text)
                await writer.delta({"content": text})

        try:
            completed = await self._manager.complete(identity, chat, on_text=on_text)
        except (
            InvalidChatRequest,
            SessionConflict,
            SessionNotFound,
            Interrupted,
            EngineError,
            WorkflowFailed,
        ) as error:
            if not writer.begun:
                raise
            await writer.event(error_document(str(error), kind="session_error", code="broken_off"))
            return await writer.end()
        reply = completed.reply
        if rest := reply.text[sent:]:
            await writer.delta({"content": rest})
        if reply.tool_calls:
            calls = [{"index": index, **call} for index, call in enumerate(reply.tool_calls)]
            await writer.delta({"tool_calls": calls})
        await writer.delta({}, finish_reason=reply.finish_reason, oolong=_extension(identity, completed))
        if chat.include_usage:
            await writer.chunk(usage=_usage(completed))
        await writer.done()
        if RELAYED in request.headers:
            self._manager.counts["relay_bytes"] += writer.bytes
        return await writer.end()


class _EventWriter:
    """Server-sent events in OpenAI's format. Headers are sent with the first event."""

    def __init__(self, request: web.Request, model: str) -> None:
        self.begun = False
        self.bytes = 0
        self._request = request
        self._model = model
        self._identity = _completion_id()
        self._created = int(time.time())
        self._response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )

    async def delta(self, delta: dict[str, Any], finish_reason: str | None = None, **more: Any) -> None:
        if not self.begun:
            delta = {"role": "assistant", **delta}
        await self.chunk(delta=delta, finish_reason=finish_reason, **more)

    async def chunk(
        self, *, delta: dict[str, Any] | None = None, finish_reason: str | None = None, **more: Any
    ) -> None:
        await self.event(
            chunk_document(
                self._identity,
                created=self._created,
                model=self._model,
                delta=delta,
                finish_reason=finish_reason,
                **more,
            )
        )

    async def event(self, document: dict[str, Any]) -> None:
        await self._write(json.dumps(document))

    async def done(self) -> None:
        await self._write("[DONE]")

    async def end(self) -> web.StreamResponse:
        await self._response.write_eof()
        return self._response

    async def _write(self, data: str) -> None:
        if not self.begun:
            self.begun = True
            await self._response.prepare(self._request)
        line = f"data: {data}\n\n".encode()
        self.bytes += len(line)
        await self._response.write(line)


def _completion_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _usage(completed: Completed) -> dict[str, int]:
    sampled = len(completed.turn.sampled.token_ids)
    return {
        "prompt_tokens": completed.prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": completed.prompt_tokens + sampled,
    }


def _extension(identity: str, completed: Completed) -> dict[str, Any]:
    """Fields beyond OpenAI's format: the turn that the call continued, and the policy versions that sampled it."""
    versions = completed.turn.sampled.versions
    return {
        "session": identity,
        "turn": completed.turn.number,
        "continues": completed.turn.parent.number if completed.turn.parent else None,
        "because": completed.turn.origin,
        "policy_versions": [min(versions), max(versions)] if versions else [],
    }


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidChatRequest("reward", f"reward={value!r}: must be a finite number")
    return float(value)
