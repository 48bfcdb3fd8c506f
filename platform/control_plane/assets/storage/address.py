"""STORAGE_URL: what it may say, and what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

EXAMPLES = "file:///var/lib/oolong or s3://bucket/prefix?endpoint=https://s3.example.org&region=eu-central-1"


class BadAddress(Exception):
    pass


@dataclass(frozen=True)
class LocalAddress:
    root: Path


@dataclass(frozen=True)
class S3Address:
    bucket: str
    prefix: str  # "" or ends with a slash
    endpoint: str | None  # None: the provider's own
    region: str | None

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}" + (f" at {self.endpoint}" if self.endpoint else "")


def read_address(url: str, *, data_dir: Path) -> LocalAddress | S3Address:
    """Without a URL, the data directory. Raises BadAddress naming what is wrong and an example."""
    if not url:
        return LocalAddress(data_dir)
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return LocalAddress(Path(unquote(parts.path)))
    if parts.scheme != "s3":
        raise BadAddress(f"STORAGE_URL={url!r}: say {EXAMPLES}")
    if parts.username or parts.password or "@" in parts.netloc:
        raise BadAddress(
            "STORAGE_URL holds a key; it would be shown. Give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
        )
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", parts.netloc):
        raise BadAddress(f"STORAGE_URL={url!r}: {parts.netloc!r} is no bucket's name; say {EXAMPLES}")
    given = parse_qs(parts.query, keep_blank_values=True)
    if unknown := sorted(set(given) - {"endpoint", "region"}):
        raise BadAddress(f"STORAGE_URL={url!r}: {unknown[0]!r} is not known; say {EXAMPLES}")
    endpoint, region = given.get("endpoint", [""])[0], given.get("region", [""])[0]
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise BadAddress(f"STORAGE_URL={url!r}: the endpoint {endpoint!r} is not http(s)://")
    prefix = unquote(parts.path).strip("/")
    return S3Address(parts.netloc, f"{prefix}/" if prefix else "", endpoint or None, region or None)
