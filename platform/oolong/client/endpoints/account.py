"""Who asks, and whether the control plane is well."""

from __future__ import annotations

from oolong.client.endpoints.request_spec import RequestSpec, get
from oolong.client.models import Health, Me


def me() -> RequestSpec[Me]:
    return get("me", Me)


def health() -> RequestSpec[Health]:
    return get("health", Health)
