"""The configuration: everything the control plane reads from environment variables, once, in a frozen object."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from oolong.public_address import is_loopback

TLS_OPTIONS = frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey"})


class InvalidSetting(Exception):
    pass


class UnsafeSetting(Exception):
    """A value that must not be used in production."""


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """How many units of the API may be used a minute (`common.rate_limits`); 0 is no limit."""

    address: int
    node: int
    user: int


@dataclass(frozen=True, kw_only=True)
class OidcRole:
    """Who is in the group has the role in the project, or without one in all of the team."""

    group: str
    team: str
    project: str
    role: str


@dataclass(frozen=True, kw_only=True)
class Oidc:
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str  # on the button
    role_claim: str
    roles: tuple[OidcRole, ...]
    hosts: tuple[str, ...] = ()  # private ones beside the issuer's, such as of the token endpoint
    link_by_email: bool = False  # a new subject may become the user who has its verified address
    session_hours: int = 12  # after which a browser asks the provider again
    role_days: int = 30  # without a sign-in, after which the roles lapse; 0: never


@dataclass(frozen=True, kw_only=True)
class Environment:
    database_url: str  # postgresql://user:password@host:port/name
    redis_url: str  # redis://:password@host:port/0: Celery's broker
    secret_key: str
    secrets_keys: list[str]  # for project secrets, newest first; empty: derived from secret_key
    data_dir: Path  # uploads, and the blob store when it is local
    storage_url: str  # "" (in data_dir), file:///… or s3://bucket/prefix?endpoint=…&region=…
    webui_dist: Path  # the built dashboard; may be absent
    hub_url: str  # of the hub that nodes fetch models from; "" when there is none
    allowed_hosts: list[str]
    trusted_origins: list[str]  # for CSRF behind a proxy: https://oolong.example
    public_url: str  # how browsers reach us; printed in login links
    secure_cookies: bool
    debug: bool
    production: bool  # OOLONG_ENV=production: unsafe values are refused at the start
    log_format: str  # json, text, or empty: text at a terminal, JSON elsewhere
    metrics_token: str  # bearer of GET /metrics; empty: there are no metrics
    rate_quotas: Quotas
    oidc: Oidc | None  # sign-in with an identity provider
    node_lease_seconds: float  # seconds without a heartbeat after which a node is UNRESPONSIVE
    orphan_seconds: float  # seconds without a heartbeat after which a node ends its own jobs
    heartbeat_seconds: float
    reward_origins: list[str]  # that rewards may ask: https://judge.example.com; none by default
    webhook_networks: list[str]  # private networks that webhooks may lead to: 10.1.0.0/16; none by default
    trusted_proxies: list[str] = field(default_factory=list)  # whose X-Forwarded-* headers count
    streams_user: int = 200  # live streams that a user may have open at one web process; 0: no limit
    streams_address: int = 1000  # the same of an address
    project_fetches: int = 2  # imports by URL of a project that may be under way at once
    project_checks: int = 100  # validations and measurements of a project that may wait or run
    fair_share_half_life_hours: int = 168  # after which a team's use of slots counts half
    min_runtime_seconds: int = 600  # for which no run is preempted for another team's quota
    currency: str = "USD"  # of the prices of slots
    telemetry_days: int = 0  # after a run's end its logs and trajectories are removed; 0: never


def load_config() -> Environment:
    """Raises InvalidSetting naming the variable and an example, and UnsafeSetting in production."""
    environment = _read()
    if environment.production:
        refuse_unsafe(environment, environ=os.environ)
    return environment


def refuse_unsafe(environment: Environment, *, environ: Mapping[str, str]) -> None:
    """Reject settings that are fine on a laptop and unsafe on a network. Raises UnsafeSetting with all of them."""
    faults = []
    if environment.debug:
        faults.append("OOLONG_DEBUG=1 shows code and settings to whoever meets an error: unset it")
    if len(environment.secret_key) < 32 or len(set(environment.secret_key)) < 10:
        faults.append(
            "SECRET_KEY is too weak to sign anything: `manage.py init` makes one, or take 64 random digits"
        )
    if not environ.get("ALLOWED_HOSTS", "").strip():
        faults.append(
            "ALLOWED_HOSTS is not set: name the hosts of the public address, say oolong.example.org"
        )
    if "*" in environment.allowed_hosts:
        faults.append("ALLOWED_HOSTS=* lets anybody put words into our links: name the hosts")
    public = urlsplit(environment.public_url)
    if public.scheme != "https" and not is_loopback(public.hostname or ""):
        faults.append(
            f"OOLONG_PUBLIC_URL={environment.public_url!r}: passwords and tokens would travel readable; say https://…"
        )
    hub = urlsplit(environment.hub_url)
    if environment.hub_url and hub.scheme != "https" and not is_loopback(hub.hostname or ""):
        faults.append(
            f"OOLONG_HUB_URL={environment.hub_url!r}: no node asks a hub over plain HTTP; say https://…"
        )
    if any(ipaddress.ip_network(proxies).prefixlen == 0 for proxies in environment.trusted_proxies):
        faults.append(
            "OOLONG_TRUSTED_PROXIES has every address: anybody could forge theirs; name the proxy's address or network"
        )
    if environ.get("FORWARDED_ALLOW_IPS"):
        faults.append(
            "FORWARDED_ALLOW_IPS is uvicorn's own list of proxies: unset it, start uvicorn with --no-proxy-headers, "
            "and name your proxies in OOLONG_TRUSTED_PROXIES"
        )
    if not environ.get("OOLONG_DATA_DIR"):
        faults.append("OOLONG_DATA_DIR is not set: name a folder that outlives the process")
    if not (environ.get("REDIS_URL") or environ.get("REDIS_URL_FILE")):
        faults.append("REDIS_URL is not set: name the broker, say redis://:password@valkey:6379/0")
    if faults:
        raise UnsafeSetting("these settings are refused in production:\n  - " + "\n  - ".join(faults))


def _mode() -> str:
    mode = os.environ.get("OOLONG_ENV", "") or "development"
    if mode not in ("production", "development"):
        raise InvalidSetting(f"OOLONG_ENV={mode!r}: production or development")
    return mode


def secret_value(name: str) -> str:
    """A variable, or the content of the file that NAME_FILE names, as container engines hand secrets over."""
    file = os.environ.get(f"{name}_FILE", "")
    if not file:
        return os.environ.get(name, "")
    if os.environ.get(name):
        raise InvalidSetting(f"both {name} and {name}_FILE are set; leave one of them")
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise InvalidSetting(f"{name}_FILE={file!r} cannot be read: {error.strerror}") from error


def _read() -> Environment:
    repository = Path(__file__).resolve().parents[2]
    data_dir = Path(os.environ.get("OOLONG_DATA_DIR") or repository / "var" / "data")
    public_url = os.environ.get("OOLONG_PUBLIC_URL", "")
    return Environment(
        database_url=_required("DATABASE_URL", "postgresql://oolong:secret@127.0.0.1:5432/oolong"),
        redis_url=secret_value("REDIS_URL") or "redis://127.0.0.1:6379/0",
        secret_key=_required(
            "SECRET_KEY", "the output of `python3 -c 'import secrets; print(secrets.token_hex(32))'`"
        ),
        secrets_keys=_words(secret_value("OOLONG_SECRETS_KEYS")),
        data_dir=data_dir,
        storage_url=os.environ.get("STORAGE_URL", ""),
        hub_url=os.environ.get("OOLONG_HUB_URL", "").rstrip("/"),
        webui_dist=Path(os.environ.get("OOLONG_WEBUI_DIST") or repository / "webui" / "dist"),
        allowed_hosts=_list("ALLOWED_HOSTS") or ["127.0.0.1", "localhost", "[::1]"],
        trusted_origins=_list("OOLONG_TRUSTED_ORIGINS"),
        public_url=public_url,
        secure_cookies=public_url.startswith("https://"),
        oidc=_oidc(),
        rate_quotas=Quotas(
            address=_count("OOLONG_RATE_ADDRESS", 600, least=0),
            node=_count("OOLONG_RATE_NODE", 120_000, least=0),
            user=_count("OOLONG_RATE_USER", 3000, least=0),
        ),
        debug=_flag("OOLONG_DEBUG"),
        production=_mode() == "production",
        log_format=os.environ.get("OOLONG_LOG_FORMAT", ""),
        metrics_token=secret_value("OOLONG_METRICS_TOKEN"),
        node_lease_seconds=_seconds("OOLONG_NODE_LEASE_SECONDS", 45.0),
        orphan_seconds=_seconds("OOLONG_ORPHAN_SECONDS", 4500.0),
        heartbeat_seconds=_seconds("OOLONG_HEARTBEAT_SECONDS", 10.0),
        reward_origins=_origins("OOLONG_REWARD_ORIGINS"),
        webhook_networks=_networks("OOLONG_WEBHOOK_NETWORKS"),
        trusted_proxies=_networks("OOLONG_TRUSTED_PROXIES"),
        streams_user=_count("OOLONG_STREAMS_USER", 200, least=0),
        streams_address=_count("OOLONG_STREAMS_ADDRESS", 1000, least=0),
        project_fetches=_count("OOLONG_PROJECT_FETCHES", 2),
        project_checks=_count("OOLONG_PROJECT_CHECKS", 100),
        fair_share_half_life_hours=_count("OOLONG_FAIR_SHARE_HALF_LIFE_HOURS", 168, least=1),
        min_runtime_seconds=_count("OOLONG_MIN_RUNTIME_SECONDS", 600, least=0),
        currency=_currency("OOLONG_CURRENCY", "USD"),
        telemetry_days=_count("OOLONG_TELEMETRY_DAYS", 0, least=0),
    )


def _oidc() -> Oidc | None:
    issuer = os.environ.get("OOLONG_OIDC_ISSUER", "")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
        raise InvalidSetting(f"OOLONG_OIDC_ISSUER={issuer!r}: an identity provider is asked over https only")
    return Oidc(
        issuer=issuer,
        client_id=_required("OOLONG_OIDC_CLIENT_ID", "oolong"),
        client_secret=_required("OOLONG_OIDC_CLIENT_SECRET", "what the provider gave for this client"),
        name=os.environ.get("OOLONG_OIDC_NAME", "Single sign-on"),
        role_claim=os.environ.get("OOLONG_OIDC_ROLE_CLAIM", "groups"),
        roles=tuple(oidc_role(text) for text in _list("OOLONG_OIDC_ROLES")),
        hosts=tuple(_list("OOLONG_OIDC_HOSTS")),
        link_by_email=_flag("OOLONG_OIDC_LINK_BY_EMAIL"),
        session_hours=_count("OOLONG_OIDC_SESSION_HOURS", 12),
        role_days=_count("OOLONG_OIDC_ROLE_DAYS", 30, least=0),
    )


def oidc_role(text: str) -> OidcRole:
    """`group=team:role` or `group=team/project:role`."""
    group, _, rest = text.partition("=")
    place, _, role = rest.rpartition(":")
    team, _, project = place.partition("/")
    if not group or not team or role not in ("viewer", "editor", "operator", "admin"):
        raise InvalidSetting(
            f"OOLONG_OIDC_ROLES has {text!r}: say group=team:role or group=team/project:role, with a role of "
            "viewer, editor, operator, admin"
        )
    return OidcRole(group=group, team=team, project=project, role=role)


def database_settings(url: str) -> dict[str, object]:
    """Django's form of a postgresql:// URL, with a connection pool (CONN_MAX_AGE must stay 0 with it)."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidSetting(f"DATABASE_URL begins with {parts.scheme!r}; only postgresql:// is supported")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": _port(parts),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            **_tls(parts.query),
            "pool": {"min_size": 1, "max_size": 20, "timeout": 20},
            "connect_timeout": 10,
        },
    }


def _port(parts: SplitResult) -> str:
    try:
        return str(parts.port or "")
    except ValueError as error:  # without the address: it has the password
        raise InvalidSetting("DATABASE_URL has a port that is no number from 0 to 65535") from error


def _tls(query: str) -> dict[str, str]:
    """`?sslmode=verify-full&sslrootcert=/etc/…`; nothing else may stand there."""
    given = dict(parse_qsl(query))
    if unknown := sorted(set(given) - TLS_OPTIONS):
        raise InvalidSetting(
            f"DATABASE_URL has the option {unknown[0]!r}; known are {', '.join(sorted(TLS_OPTIONS))}"
        )
    return given


def _required(name: str, example: str) -> str:
    value = secret_value(name)
    if not value:
        raise InvalidSetting(f"the environment variable {name} is not set; say {name}={example}")
    return value


def _count(name: str, usual: int, *, least: int = 1) -> int:
    text = os.environ.get(name) or str(usual)
    if not text.isdecimal() or len(text) > 9 or int(text) < least:
        raise InvalidSetting(f"{name}={text!r}: a whole number, {least} or more")
    return int(text)


def _currency(name: str, usual: str) -> str:
    code = os.environ.get(name) or usual
    if not re.fullmatch(r"[A-Z]{3}", code):
        raise InvalidSetting(f"{name}={code!r}: three capital letters, such as USD or EUR")
    return code


def _seconds(name: str, usual: float) -> float:
    text = os.environ.get(name) or str(usual)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InvalidSetting(f"{name}={text!r}: seconds, more than 0, such as {usual:g}")
    return seconds


def _flag(name: str) -> bool:
    text = os.environ.get(name, "")
    if text not in ("", "0", "1"):
        raise InvalidSetting(f"{name}={text!r}: 1, or 0, or not set")
    return text == "1"


def _networks(name: str) -> list[str]:
    """Addresses and networks, all as networks: 10.1.0.7 is 10.1.0.7/32."""
    found = []
    for text in _list(name):
        try:
            found.append(str(ipaddress.ip_network(text, strict=False)))
        except ValueError as error:
            raise InvalidSetting(f"{name}: {text!r} is no network, such as 10.1.0.0/16: {error}") from error
    return found


def _origins(name: str) -> list[str]:
    """Each as `safe_http.origin_of` writes it: without the scheme's usual port."""
    found = []
    for text in _list(name):
        match = re.fullmatch(
            r"(https?)://([a-z0-9][a-z0-9.-]*|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?", text.lower()
        )
        if match is None:
            raise InvalidSetting(
                f"{name}: {text!r} is no origin: give http:// or https://, a host and maybe a port, such as "
                "https://judge.example.com or http://10.1.0.7:8000, without a path"
            )
        scheme, host, port = match.groups()
        usual = port is None or int(port) == {"http": 80, "https": 443}[scheme]
        found.append(f"{scheme}://{host}" + ("" if usual else f":{int(port)}"))
    return found


def _list(name: str) -> list[str]:
    return _words(os.environ.get(name, ""))


def _words(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
