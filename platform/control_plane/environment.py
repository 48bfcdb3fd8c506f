"""Everything the control plane reads from the environment, once, in one frozen object."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit


class MissingSetting(Exception):
    pass


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """How many units of the API may be used a minute (`common.rate_limits`); 0 is no limit."""

    address: int
    node: int
    user: int


@dataclass(frozen=True, kw_only=True)
class Environment:
    database_url: str  # postgresql://user:password@host:port/name
    redis_url: str  # redis://:password@host:port/0: Celery's broker
    secret_key: str
    secrets_keys: list[str]  # for project secrets, newest first; empty: derived from secret_key
    data_dir: Path  # uploads, and the blob store when it is local
    storage_url: str  # "" (in data_dir), file:///… or s3://bucket/prefix?endpoint=…&region=…
    webui_dist: Path  # the built dashboard; may be absent
    allowed_hosts: list[str]
    trusted_origins: list[str]  # for CSRF behind a proxy: https://oolong.example
    public_url: str  # how browsers reach us; printed in login links
    secure_cookies: bool
    debug: bool
    log_format: str  # json, text, or empty: text at a terminal, JSON elsewhere
    metrics_token: str  # bearer of GET /metrics; empty: there are no metrics
    rate_quotas: Quotas
    node_lease_seconds: float  # silence after which a node is UNRESPONSIVE
    orphan_seconds: float  # silence after which a node ends its own jobs
    heartbeat_seconds: float


def read_environment() -> Environment:
    """Raises MissingSetting naming the variable and an example."""
    repository = Path(__file__).resolve().parents[2]
    data_dir = Path(os.environ.get("OOLONG_DATA_DIR") or repository / "var" / "data")
    public_url = os.environ.get("OOLONG_PUBLIC_URL", "")
    return Environment(
        database_url=_required("DATABASE_URL", "postgresql://oolong:secret@127.0.0.1:5432/oolong"),
        redis_url=os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
        secret_key=_required(
            "SECRET_KEY", "the output of `python3 -c 'import secrets; print(secrets.token_hex(32))'`"
        ),
        secrets_keys=_list("OOLONG_SECRETS_KEYS"),
        data_dir=data_dir,
        storage_url=os.environ.get("STORAGE_URL", ""),
        webui_dist=Path(os.environ.get("OOLONG_WEBUI_DIST") or repository / "webui" / "dist"),
        allowed_hosts=_list("ALLOWED_HOSTS") or ["127.0.0.1", "localhost", "[::1]"],
        trusted_origins=_list("OOLONG_TRUSTED_ORIGINS"),
        public_url=public_url,
        secure_cookies=public_url.startswith("https://"),
        rate_quotas=Quotas(
            address=int(os.environ.get("OOLONG_RATE_ADDRESS", "600")),
            node=int(os.environ.get("OOLONG_RATE_NODE", "120000")),
            user=int(os.environ.get("OOLONG_RATE_USER", "3000")),
        ),
        debug=os.environ.get("OOLONG_DEBUG", "") == "1",
        log_format=os.environ.get("OOLONG_LOG_FORMAT", ""),
        metrics_token=os.environ.get("OOLONG_METRICS_TOKEN", ""),
        node_lease_seconds=float(os.environ.get("OOLONG_NODE_LEASE_SECONDS", "45")),
        orphan_seconds=float(os.environ.get("OOLONG_ORPHAN_SECONDS", "4500")),
        heartbeat_seconds=float(os.environ.get("OOLONG_HEARTBEAT_SECONDS", "10")),
    )


def database_settings(url: str) -> dict[str, object]:
    """Django's form of a postgresql:// URL, with a connection pool (CONN_MAX_AGE must stay 0 with it)."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise MissingSetting(f"DATABASE_URL={url!r}: only postgresql:// is supported")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {"pool": {"min_size": 1, "max_size": 20, "timeout": 20}, "connect_timeout": 10},
    }


def _required(name: str, example: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise MissingSetting(f"the environment variable {name} is not set; say {name}={example}")
    return value


def _list(name: str) -> list[str]:
    return [item.strip() for item in os.environ.get(name, "").split(",") if item.strip()]
