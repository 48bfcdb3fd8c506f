"""API tokens of the caller."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.calls import call
from oolong.client.calls.call import Call, expiry
from oolong.client.models import CreatedToken, Page, Token


def page(everybodys: bool) -> Call[Page[Token]]:
    return call.page("tokens", Token, **({"all": "true"} if everybodys else {}))


def create(name: str, scopes: Sequence[str], expires_at: str | None, never: bool) -> Call[CreatedToken]:
    body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never)}
    return call.post("tokens", CreatedToken, body=body)


def revoke(token_id: str) -> Call[None]:
    return call.delete("tokens/{}", token_id)


def rotate(token_id: str, overlap_seconds: int) -> Call[CreatedToken]:
    return call.post("tokens/{}/rotate", CreatedToken, token_id, body={"overlap_seconds": overlap_seconds})
