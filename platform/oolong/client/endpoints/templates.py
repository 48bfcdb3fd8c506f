"""Run templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, given
from oolong.client.models import Page, RunTemplate


def page() -> Call[Page[RunTemplate]]:
    return call.page("run-templates", RunTemplate)


def create(
    name: str, spec: Mapping[str, Any], *, description: str | None = None, for_team: bool = False
) -> Call[RunTemplate]:
    named = given({"description": description, "for_team": for_team or None})
    return call.post("run-templates", RunTemplate, body={"name": name, "spec": dict(spec), **named})


def get(template_id: str) -> Call[RunTemplate]:
    return call.get("run-templates/{}", RunTemplate, template_id)


def add_version(template_id: str, spec: Mapping[str, Any]) -> Call[RunTemplate]:
    return call.post("run-templates/{}/versions", RunTemplate, template_id, body={"spec": dict(spec)})


def delete(template_id: str) -> Call[None]:
    return call.delete("run-templates/{}", template_id)
