"""Project secrets."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Page, Secret


def page() -> Call[Page[Secret]]:
    return call.page("secrets", Secret)


def set_value(name: str, value: str, hosts: Sequence[str], jobs: Sequence[str]) -> Call[Secret]:
    body = {"name": name, "value": value, "hosts": list(hosts), "jobs": list(jobs)}
    return call.post("secrets", Secret, body=body)


def delete(name: str) -> Call[None]:
    return call.delete("secrets/{}", name)
