"""Settings without secrets: URLs without credentials, and whether each secret is set."""

from __future__ import annotations

import dataclasses
from urllib.parse import urlsplit, urlunsplit

from django.conf import settings

# Everything else of the environment is a secret until somebody puts it here.
PUBLIC = frozenset(
    {
        "data_dir", "webui_dist", "allowed_hosts", "trusted_origins", "public_url", "secure_cookies", "debug",
        "production", "log_format", "node_lease_seconds", "orphan_seconds", "heartbeat_seconds",
    }
)  # fmt: skip
URLS = frozenset({"database_url", "redis_url", "storage_url"})


def redacted_settings() -> dict[str, str]:
    """Name -> value, fit for a stranger's eyes."""
    found = {}
    for field in dataclasses.fields(settings.ENVIRONMENT):
        value = getattr(settings.ENVIRONMENT, field.name)
        if field.name in URLS:
            found[field.name] = without_credentials(str(value))
        elif field.name in PUBLIC:
            found[field.name] = str(value)
        else:
            found[field.name] = "set" if value else "not set"
    return found


def without_credentials(url: str) -> str:
    """`postgresql://…@host:5432/name`: neither user nor password, and no query, which may hold either."""
    if not url:
        return ""
    parts = urlsplit(url)
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "not an address"
    known = "…@" if parts.username or parts.password else ""
    query = "…" if parts.query else ""
    return urlunsplit((parts.scheme, f"{known}{parts.hostname or ''}{port}", parts.path, query, ""))
