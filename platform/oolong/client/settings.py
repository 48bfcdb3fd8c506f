"""Where the control plane is and who asks: environment, or ~/.config/oolong/config.toml."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oolong.client.errors import NotConfigured


@dataclass(frozen=True)
class ClientSettings:
    url: str
    token: str


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(base) / "oolong" / "config.toml"


def read_settings(
    *, url: str | None = None, token: str | None = None, environment: Mapping[str, str] = os.environ
) -> ClientSettings:
    """Arguments win over OOLONG_URL and OOLONG_TOKEN, these over the file that `oolong login` writes."""
    stored = _stored(config_file(environment))
    url = url or environment.get("OOLONG_URL") or stored.get("url")
    token = token or environment.get("OOLONG_TOKEN") or stored.get("token")
    if not url or not token:
        missing = " and ".join(
            name for name, value in (("OOLONG_URL", url), ("OOLONG_TOKEN", token)) if not value
        )
        raise NotConfigured(
            f"{missing} not set: run `oolong login --url URL`, or set it in the environment (a token comes from the "
            "dashboard's token page or `oolong token create`)"
        )
    return ClientSettings(url.rstrip("/"), token)


def write_settings(settings: ClientSettings, environment: Mapping[str, str] = os.environ) -> Path:
    """Keep them for the next time, readable by the owner only."""
    path = config_file(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        # A JSON string is a TOML basic string for every character that a URL or a token can hold.
        file.write(f"url = {json.dumps(settings.url)}\ntoken = {json.dumps(settings.token)}\n")
    temporary.rename(path)
    return path


def _stored(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    if path.stat().st_mode & 0o077:
        raise NotConfigured(f"{path} holds a token and others may read it: chmod 600 {path}")
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{path} is not valid TOML ({error}); run `oolong login` again") from error
    return {key: value for key, value in document.items() if isinstance(value, str)}
