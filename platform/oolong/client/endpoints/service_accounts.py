"""Callers without a password that belong to the token's project, for pipelines."""

from __future__ import annotations

from collections.abc import Sequence

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec, expiry
from oolong.client.models import CreatedToken, Page, ServiceAccount


def page() -> RequestSpec[Page[ServiceAccount]]:
    return request_spec.page("service-accounts", ServiceAccount)


def create(name: str, role: str) -> RequestSpec[ServiceAccount]:
    return request_spec.post("service-accounts", ServiceAccount, body={"name": name, "role": role})


def set_role(service_account_id: str, role: str) -> RequestSpec[ServiceAccount]:
    return request_spec.patch("service-accounts/{}", ServiceAccount, service_account_id, body={"role": role})


def remove(service_account_id: str) -> RequestSpec[None]:
    return request_spec.delete("service-accounts/{}", service_account_id)


def create_token(
    service_account_id: str, name: str, scopes: Sequence[str], expires_at: str | None, never: bool
) -> RequestSpec[CreatedToken]:
    body = {"name": name, "scopes": list(scopes), **expiry(expires_at, never)}
    return request_spec.post("service-accounts/{}/tokens", CreatedToken, service_account_id, body=body)
