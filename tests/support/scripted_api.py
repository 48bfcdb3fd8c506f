"""A REST API for tests of the SDK and the command: answers are laid out by path, requests are kept."""

from __future__ import annotations

import asyncio
import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from oolong.client import models

TOKEN = "ool_test"


@dataclass
class Answer:
    body: Any = None  # JSON, or bytes as they are
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None  # send so many bytes of the body, then close the connection


@dataclass
class Asked:
    method: str
    path: str  # below /api/v1, without the query
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


Script = Answer | list[Answer] | Callable[[Asked], Answer]


@dataclass
class ScriptedApi:
    """`script["GET runs/run_1"]` is one answer, a list of answers (the last one stays), or a function."""

    script: dict[str, Script] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def paths(self) -> list[str]:
        return [f"{asked.method} {asked.path}" for asked in self.asked]

    @contextmanager
    def serve(self) -> Iterator[ScriptedApi]:
        started = threading.Event()
        loop = asyncio.new_event_loop()
        ended = asyncio.Event()

        async def main() -> None:
            app = web.Application(client_max_size=64 * 1024**2)
            app.router.add_route("*", "/api/v1/{path:.*}", self._answer)
            runner = web.AppRunner(app, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            assert site._server is not None
            self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
            started.set()
            await ended.wait()
            await runner.cleanup()

        thread = threading.Thread(target=lambda: loop.run_until_complete(main()), daemon=True)
        thread.start()
        assert started.wait(60)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join(60)
            assert not thread.is_alive()
            loop.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(
            request.method,
            request.match_info["path"],
            dict(request.query),
            dict(request.headers),
            await request.read(),
        )
        self.asked.append(asked)
        anybody = asked.path == "invitations/accept" and "Authorization" not in request.headers
        if not anybody and request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.json_response(problem("not_authenticated", "the token is unknown"), status=401)
        script = self.script.get(f"{asked.method} {asked.path}")
        if script is None:
            return web.json_response(problem("not_found", f"nothing at {asked.path}"), status=404)
        if callable(script):
            answer = script(asked)
        elif isinstance(script, list):
            answer = script.pop(0) if len(script) > 1 else script[0]
        else:
            answer = script
        if not isinstance(answer.body, bytes):
            return web.json_response(answer.body, status=answer.status, headers=answer.headers)
        if answer.cut_after is None:
            return web.Response(body=answer.body, status=answer.status, headers=answer.headers)
        cut = web.StreamResponse(status=answer.status, headers=answer.headers)
        cut.content_length = len(answer.body)
        await cut.prepare(request)
        await cut.write(answer.body[: answer.cut_after])
        assert request.transport is not None
        request.transport.close()
        return cut


def problem(code: str, detail: str, errors: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {"code": code, "detail": detail, "errors": errors or [], "request_id": "req_1", "title": code}


def page(*items: Any, cursor: str | None = None) -> dict[str, Any]:
    return {"data": list(items), "next_cursor": cursor, "has_more": cursor is not None}


def run(status: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    """A run as the API shows it."""
    about = {
        "id": "run_1", "name": "letters", "kind": "rl", "status": status, "fault": "none", "attempt_number": 1,
        "train_step": 3, "total_train_steps": 60, "policy_version": 3, "reward_mean": 0.5, "staleness_mean": 1.2,
        "dataset": {"id": "dsv_1", "ref": "letters@1"}, "created_by": "alice", "metrics_seq": 7,
        "model": {"kind": "base_model", "id": "bm_1", "name": "tiny"},
    }  # fmt: skip
    return shaped(models.Run, **{**about, **changes})


def shaped(model: type[BaseModel], /, **fields: Any) -> dict[str, Any]:
    """A response with every field that the model requires: the given ones, the others empty."""
    hints = typing.get_type_hints(model)
    missing = {
        field.alias or name: _empty(hints[name])
        for name, field in model.model_fields.items()
        if field.is_required() and (field.alias or name) not in fields
    }
    return {**missing, **fields}


def _empty(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return shaped(hint)
    return "2026-01-01T00:00:00.000Z" if hint is datetime else (typing.get_origin(hint) or hint)()
