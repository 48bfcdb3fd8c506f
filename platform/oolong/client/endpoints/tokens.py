"""API tokens of the caller, in the project of the token or in another of its team (`project`, an id)."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, expiry
from oolong.client.models import CreatedToken, Page, Token


def page(everybodys: bool, project: str | None) -> RequestSpec[Page[Token]]:
    return request_spec.page("tokens", Token, all="true" if everybodys else None, project=project)


def create(
    name: str, scopes: Sequence[str], expires_at: str | None, never: bool, project: str | None
) -> RequestSpec[CreatedToken]:
    body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never)}
    return request_spec.post("tokens", CreatedToken, body=body).with_params(project=project)


def revoke(token_id: str, project: str | None) -> RequestSpec[None]:
    return request_spec.delete("tokens/{}", token_id).with_params(project=project)


def rotate(token_id: str, overlap_seconds: int, project: str | None) -> RequestSpec[CreatedToken]:
    turned = request_spec.post(
        "tokens/{}/rotate", CreatedToken, token_id, body={"overlap_seconds": overlap_seconds}
    )
    return turned.with_params(project=project)
