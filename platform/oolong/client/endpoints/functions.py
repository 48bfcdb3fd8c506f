"""Versioned source of users: rewards, workflows, losses."""

from __future__ import annotations

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Function, FunctionVersion, Page


def page(*, kind: str | None = None) -> Call[Page[Function]]:
    return call.page("functions", Function, kind=kind)


def get(function_id: str) -> Call[Function]:
    return call.get("functions/{}", Function, function_id)


def upload(name: str, kind: str, source: str, description: str) -> Call[FunctionVersion]:
    body = {"name": name, "kind": kind, "source": source, "description": description}
    return call.post("functions", FunctionVersion, body=body)


def resolve(ref: str) -> Call[FunctionVersion]:
    return call.get("function-versions/resolve", FunctionVersion, ref=ref)


def source(version_id: str) -> Call[bytes]:
    return call.get("function-versions/{}/source", bytes, version_id)
