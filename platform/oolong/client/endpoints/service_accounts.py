"""Callers without a password that belong to the token's project, for pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call, expiry
from oolong.client.models import CreatedToken, Page, ServiceAccount


def page() -> Call[Page[ServiceAccount]]:
    return call.page("service-accounts", ServiceAccount)


def create(name: str, role: str) -> Call[ServiceAccount]:
    return call.post("service-accounts", ServiceAccount, body={"name": name, "role": role})


def set_role(service_account_id: str, role: str) -> Call[ServiceAccount]:
    return call.patch("service-accounts/{}", ServiceAccount, service_account_id, body={"role": role})


def remove(service_account_id: str) -> Call[None]:
    return call.delete("service-accounts/{}", service_account_id)


def create_token(
    service_account_id: str, name: str, scopes: Sequence[str], expires_at: str | None, never: bool
) -> Call[CreatedToken]:
    body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never)}
    return call.post("service-accounts/{}/tokens", CreatedToken, service_account_id, body=body)
