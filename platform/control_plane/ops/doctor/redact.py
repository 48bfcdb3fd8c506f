"""Taking secrets out of text. Twice: the values that this installation knows, and whatever looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from django.conf import settings

HIDDEN = "[redacted]"
SHORTEST = 6  # a shorter value would blot out ordinary words

_WORDS = "secret|password|passwd|pwd|token|api[_-]?key|access[_-]?key|private[_-]?key|credential"
_NAMED = rf"(?:[A-Za-z0-9_.-]*(?:{_WORDS})[A-Za-z0-9_.-]*)"
_SIGN = r"\\*[\"']?\s*[=:]\s*"
_PATTERNS = (
    # A private key, whole.
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
    # Our own credentials, and the well-known ones of others.
    re.compile(r"\bool(?:node|join|invite)?_[A-Za-z0-9_-]{8,}"),
    re.compile(
        r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|whsec_)[A-Za-z0-9_+/=-]{8,}"
    ),
    re.compile(r"\beyJ[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]*"),
    # Addresses that are credentials.
    re.compile(r"(?<=/login/)[^\s/?\"']+"),
    re.compile(r"(?<=/checkpoint-downloads/)[^\s/?\"']+"),
    re.compile(r"(?<=://)[^\s/@\"']+(?=@)"),
    re.compile(r"(?<=[?&])(?:X-Amz-[A-Za-z-]+|sig|signature)=[^\s&\"']+", re.I),
    re.compile(r"(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=-]{6,}"),
    # name = value, "name": "value", and both inside a JSON string, where quotes are \\".
    re.compile(rf"(?i)(?<![A-Za-z0-9]){_NAMED}{_SIGN}(?:\\*\"[^\"]*\"|\\*'[^']*'|[^\s,;}}\]]+)"),
)


def redact(text: str, known: Iterable[str] = ()) -> str:
    for value in sorted({value for value in known if len(value) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(_hide, text)
    return text


def _hide(found: re.Match[str]) -> str:
    """Of `password=hunter2` the name stays: it says what was there."""
    text = found[0]
    name = re.match(rf"(?i){_NAMED}{_SIGN}", text)
    if name is not None:
        rest = text[name.end() :]
        return text if rest.strip("\\\"'").lower() in _HARMLESS else f"{name[0]}{HIDDEN}"
    return HIDDEN


_HARMLESS = frozenset({"", "true", "false", "none", "null", "set", "not", HIDDEN})


def known_secrets() -> set[str]:
    """Every secret of the settings, and the passwords inside addresses."""
    environment = settings.ENVIRONMENT
    found = {environment.secret_key, environment.metrics_token, *environment.secrets_keys}
    if environment.oidc is not None:
        found.add(environment.oidc.client_secret)
    for url in (environment.database_url, environment.redis_url):
        password = urlsplit(url).password
        if password:
            found |= {password, unquote(password)}
    return {value for value in found if value}
