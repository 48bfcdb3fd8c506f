"""Where the control plane is and who asks: arguments, environment, or a profile of ~/.config/oolong/config.toml."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from oolong.client.errors import BadAddress, NotConfigured

DEFAULT_PROFILE = "default"
_PROFILE = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True)
class ClientSettings:
    url: str
    token: str = field(repr=False)  # "": nobody yet, who accepts an invitation; never printed


@dataclass(frozen=True)
class Profiles:
    """What `oolong login` keeps: a server and a token for each name, and which is taken when none is named."""

    current: str
    by_name: Mapping[str, ClientSettings]


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(base) / "oolong" / "config.toml"


def read_settings(
    *,
    url: str | None = None,
    token: str | None = None,
    profile: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ClientSettings:
    """Arguments win over OOLONG_URL and OOLONG_TOKEN, these over the profile (OOLONG_PROFILE, or the current one)."""
    url = (url or environment.get("OOLONG_URL") or "").strip()
    token = (token or environment.get("OOLONG_TOKEN") or "").strip()
    if not url or not token:
        stored = _stored(profile or environment.get("OOLONG_PROFILE") or None, environment)
        # A token belongs to its server: it is never sent to one that was named otherwise.
        if stored is not None and (not url or url.rstrip("/") == stored.url):
            url, token = url or stored.url, token or stored.token
    if not url or not token:
        missing = " and ".join(
            name for name, value in (("OOLONG_URL", url), ("OOLONG_TOKEN", token)) if not value
        )
        raise NotConfigured(
            f"{missing} not set: run `oolong login --url URL`, or set it in the environment (a token comes from the "
            "dashboard's token page or `oolong token create`)"
        )
    return ClientSettings(checked_url(url), _checked_token(token))


def _checked_token(token: str) -> str:
    """Raises NotConfigured for what no HTTP header can hold; the message does not repeat the secret."""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise NotConfigured(
            "the token holds a space, a line break or a character outside ASCII, so it is not a token: copy it again "
            "(OOLONG_TOKEN, --token, or `oolong login`)"
        )
    return token


def checked_url(url: str) -> str:
    """Without a slash at its end. Raises BadAddress for what is no http(s) address of a host."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise BadAddress(f"{url!r} is no address of a control plane: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise BadAddress("the URL of the control plane holds a user name or password; give the address alone")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise BadAddress(
            f"{url!r} is no address of a control plane; it looks like https://oolong.example.org or "
            "http://127.0.0.1:8400"
        )
    return url.rstrip("/")


def read_profiles(environment: Mapping[str, str] = os.environ) -> Profiles:
    path = config_file(environment)
    if not path.exists():
        return Profiles(DEFAULT_PROFILE, {})
    if path.stat().st_mode & 0o077:
        raise NotConfigured(f"{path} holds a token and others may read it: chmod 600 {path}")
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{path} is not valid TOML ({error}); run `oolong login` again") from error
    sections = document.get("profiles", {})
    return Profiles(
        str(document.get("profile", DEFAULT_PROFILE)),
        {name: ClientSettings(kept["url"], kept["token"].strip()) for name, kept in sections.items()},
    )


def write_settings(
    settings: ClientSettings,
    *,
    profile: str = DEFAULT_PROFILE,
    environment: Mapping[str, str] = os.environ,
) -> Path:
    """Keep them for the next time under that name, which becomes the current one; readable by the owner only."""
    if not _PROFILE.fullmatch(profile):
        raise NotConfigured(f"{profile!r} is no name of a profile: letters, digits, _ and -, at most 40")
    return write_profiles(
        Profiles(profile, {**read_profiles(environment).by_name, profile: settings}), environment
    )


def write_profiles(profiles: Profiles, environment: Mapping[str, str] = os.environ) -> Path:
    path = config_file(environment)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A JSON string is a TOML basic string for every character that a URL or a token can hold.
    lines = [f"profile = {json.dumps(profiles.current)}\n"]
    for name, kept in profiles.by_name.items():
        lines.append(f"\n[profiles.{name}]\nurl = {json.dumps(kept.url)}\ntoken = {json.dumps(kept.token)}\n")
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("".join(lines))
    temporary.rename(path)
    return path


def _stored(profile: str | None, environment: Mapping[str, str]) -> ClientSettings | None:
    profiles = read_profiles(environment)
    if profile is None:
        return profiles.by_name.get(profiles.current)
    if profile not in profiles.by_name:
        known = ", ".join(profiles.by_name) or "none yet"
        raise NotConfigured(
            f"there is no profile {profile!r} (known: {known}); make it: oolong login --profile {profile} --url URL"
        )
    return profiles.by_name[profile]
