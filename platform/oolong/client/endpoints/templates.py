"""Run templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, drop_none
from oolong.client.models import Page, RunTemplate


def page() -> RequestSpec[Page[RunTemplate]]:
    return request_spec.page("run-templates", RunTemplate)


def create(
    name: str, spec: Mapping[str, Any], *, description: str | None = None, for_team: bool = False
) -> RequestSpec[RunTemplate]:
    named = drop_none({"description": description, "for_team": for_team or None})
    return request_spec.post("run-templates", RunTemplate, body={"name": name, "spec": dict(spec), **named})


def get(template_id: str) -> RequestSpec[RunTemplate]:
    return request_spec.get("run-templates/{}", RunTemplate, template_id)


def add_version(template_id: str, spec: Mapping[str, Any]) -> RequestSpec[RunTemplate]:
    return request_spec.post("run-templates/{}/versions", RunTemplate, template_id, body={"spec": dict(spec)})


def delete(template_id: str) -> RequestSpec[None]:
    return request_spec.delete("run-templates/{}", template_id)
