"""The project of the token."""

from __future__ import annotations

from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Page, Project, ProjectEvent


def get() -> RequestSpec[Project]:
    return request_spec.get("project", Project)


def change(**settings: Any) -> RequestSpec[Project]:
    return request_spec.patch("project", Project, body=settings)


def events() -> RequestSpec[Page[ProjectEvent]]:
    return request_spec.page("project/events", ProjectEvent)


def page() -> RequestSpec[Page[Project]]:
    """All that the caller has a role in; of the token's team."""
    return request_spec.page("projects", Project)


def create(name: str) -> RequestSpec[Project]:
    return request_spec.post("projects", Project, body={"name": name})
