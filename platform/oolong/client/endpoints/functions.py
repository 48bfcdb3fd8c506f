"""Versioned source of users: rewards, workflows, losses."""

from __future__ import annotations

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Function, FunctionVersion, Page


def page(*, kind: str | None = None) -> RequestSpec[Page[Function]]:
    return request_spec.page("functions", Function, kind=kind)


def get(function_id: str) -> RequestSpec[Function]:
    return request_spec.get("functions/{}", Function, function_id)


def upload(name: str, kind: str, source: str, description: str) -> RequestSpec[FunctionVersion]:
    body = {"name": name, "kind": kind, "source": source, "description": description}
    return request_spec.post("functions", FunctionVersion, body=body)


def resolve(ref: str) -> RequestSpec[FunctionVersion]:
    return request_spec.get("function-versions/resolve", FunctionVersion, ref=ref)


def source(version_id: str) -> RequestSpec[bytes]:
    return request_spec.get("function-versions/{}/source", bytes, version_id)
