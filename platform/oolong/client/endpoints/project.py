"""The project of the token."""

from __future__ import annotations

from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Page, Project, ProjectEvent


def get() -> Call[Project]:
    return call.get("project", Project)


def change(**settings: Any) -> Call[Project]:
    return call.patch("project", Project, body=settings)


def events() -> Call[Page[ProjectEvent]]:
    return call.page("project/events", ProjectEvent)


def page() -> Call[Page[Project]]:
    """All that the caller has a role in; of the token's team."""
    return call.page("projects", Project)


def create(name: str) -> Call[Project]:
    return call.post("projects", Project, body={"name": name})
