"""Project secrets."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.calls import call
from oolong.client.calls.call import Call
from oolong.client.models import Page, Secret


def page() -> Call[Page[Secret]]:
    return call.page("secrets", Secret)


def set_value(name: str, value: str, hosts: Sequence[str]) -> Call[Secret]:
    return call.post("secrets", Secret, body={"name": name, "value": value, "hosts": list(hosts)})


def delete(name: str) -> Call[None]:
    return call.delete("secrets/{}", name)
