"""Every request of the agent's client has an endpoint: a renamed address fails here, not on a node."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx
import pytest
from django.urls import resolve

from gpu_agents.agent.api import AgentApi, ApiError

METHODS = [
    name
    for name, member in inspect.getmembers(AgentApi, inspect.isfunction)
    if not name.startswith("_") and name != "close"
]
VALUES: dict[str, Any] = {"str": "x", "int": 1, "bytes": b"", "list[TelemetryChunk]": [], "list[bytes]": []}


def arguments(method: Callable[..., Any]) -> dict[str, Any]:
    """A value for each parameter without a default; a body is an empty object."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    return {each.name: VALUES.get(each.annotation, {}) for each in parameters if each.default is each.empty}


async def request_of(name: str) -> httpx.Request:
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(404, json={"code": "not_found", "detail": "no"})

    api = AgentApi("http://127.0.0.1:1", "credential", httpx.MockTransport(refuse))
    with pytest.raises(ApiError):
        await _finish(getattr(api, name)(**arguments(getattr(AgentApi, name))))
    await api.close()
    return sent[0]


async def _finish(call: Awaitable[Any] | AbstractAsyncContextManager[Any]) -> None:
    if isinstance(call, AbstractAsyncContextManager):
        async with call:
            pass
    else:
        await call


@pytest.mark.parametrize("name", METHODS)
def test_each_request_of_an_agent_has_an_endpoint(name: str) -> None:
    request = asyncio.run(request_of(name))
    view = resolve(request.url.path).func.view_class
    assert hasattr(view, request.method.lower()), (request.method, request.url.path)
