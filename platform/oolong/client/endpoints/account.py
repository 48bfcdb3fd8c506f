"""Who asks, and whether the control plane is well."""

from __future__ import annotations

from oolong.client.endpoints.call import Call, get
from oolong.client.models import Health, Me


def me() -> Call[Me]:
    return get("me", Me)


def health() -> Call[Health]:
    return get("health", Health)
