"""Project secrets."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Page, Secret


def page() -> RequestSpec[Page[Secret]]:
    return request_spec.page("secrets", Secret)


def set_value(name: str, value: str, hosts: Sequence[str], jobs: Sequence[str]) -> RequestSpec[Secret]:
    body = {"name": name, "value": value, "hosts": list(hosts), "jobs": list(jobs)}
    return request_spec.post("secrets", Secret, body=body)


def delete(name: str) -> RequestSpec[None]:
    return request_spec.delete("secrets/{}", name)
