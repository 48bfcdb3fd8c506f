"""API tokens of the caller, in the project of the token or in another of its team (`project`, an id)."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, expiry
from oolong.client.models import CreatedToken, Page, Token


def page(everybodys: bool, project: str | None) -> Call[Page[Token]]:
    return call.page("tokens", Token, all="true" if everybodys else None, project=project)


def create(
    name: str, scopes: Sequence[str], expires_at: str | None, never: bool, project: str | None
) -> Call[CreatedToken]:
    body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never)}
    return call.post("tokens", CreatedToken, body=body).with_params(project=project)


def revoke(token_id: str, project: str | None) -> Call[None]:
    return call.delete("tokens/{}", token_id).with_params(project=project)


def rotate(token_id: str, overlap_seconds: int, project: str | None) -> Call[CreatedToken]:
    turned = call.post("tokens/{}/rotate", CreatedToken, token_id, body={"overlap_seconds": overlap_seconds})
    return turned.with_params(project=project)
