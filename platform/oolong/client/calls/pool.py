"""The pool and its nodes."""

from __future__ import annotations

from oolong.client.calls import call
from oolong.client.calls.call import Call
from oolong.client.models import EnrolmentToken, Node, Pool, Usage


def get() -> Call[Pool]:
    return call.get("pool", Pool)


def enrolment_token() -> Call[EnrolmentToken]:
    return call.post("pool/enrolment-tokens", EnrolmentToken)


def cordon(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/cordon", Node, node_id)


def uncordon(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/uncordon", Node, node_id)


def drain(node_id: str) -> Call[Node]:
    return call.post("pool/nodes/{}/drain", Node, node_id)


def usage(by: str, since: str | None, until: str | None, device: str | None) -> Call[Usage]:
    return call.get("pool/usage", Usage, by=by, since=since, until=until, device=device)


def usage_csv(by: str, since: str | None, until: str | None, device: str | None) -> Call[bytes]:
    return call.get("pool/usage", bytes, by=by, since=since, until=until, device=device, format="csv")
