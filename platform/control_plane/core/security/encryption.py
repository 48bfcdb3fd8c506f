"""Encryption of what must be kept and not be read: AES-256-GCM under a key of the server.

Keys come from OOLONG_SECRETS_KEYS, newest first; without it one is derived from SECRET_KEY. Each sealed value names
its key, so that an old key opens what it sealed until `manage.py rotate_secrets` has sealed everything anew.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

_NONCE_BYTES = 12


class CannotOpen(Exception):
    """The value was sealed with a key that this server does not have, or was changed, or belongs elsewhere."""


@dataclass(frozen=True)
class Sealed:
    key_id: str
    sealed: bytes


def seal(value: str, *, place: str) -> Sealed:
    """Encrypt with the newest key. `place` says where the value belongs; elsewhere it does not open."""
    key_id, key = next(iter(_keys().items()))
    nonce = os.urandom(_NONCE_BYTES)
    return Sealed(key_id, nonce + AESGCM(key).encrypt(nonce, value.encode(), place.encode()))


def unseal(sealed: Sealed, *, place: str) -> str:
    key = _keys().get(sealed.key_id)
    if key is None:
        raise CannotOpen(
            f"sealed with the key {sealed.key_id}, which this server does not have; add it to OOLONG_SECRETS_KEYS"
        )
    nonce, text = sealed.sealed[:_NONCE_BYTES], sealed.sealed[_NONCE_BYTES:]
    try:
        return AESGCM(key).decrypt(nonce, text, place.encode()).decode()
    except InvalidTag as error:
        raise CannotOpen(f"what is kept for {place} is not what was sealed for it") from error


def fingerprint(value: str, *, place: str) -> str:
    """Eight characters that change with the value. Only who has the server's newest key can try out guesses."""
    key = _derived(_texts()[0], b"oolong fingerprints of project secrets")
    return hmac.new(key, f"{place}\0{value}".encode(), hashlib.sha256).hexdigest()[:8]


def newest_key_id() -> str:
    return next(iter(_keys()))


def _keys() -> Mapping[str, bytes]:
    """Key by its id, newest first."""
    derived = [_derived(text, b"oolong project secrets") for text in _texts()]
    return {hashlib.sha256(b"id" + key).hexdigest()[:16]: key for key in derived}


def _texts() -> list[str]:
    """What the keys are derived from, newest first."""
    return settings.ENVIRONMENT.secrets_keys or [settings.SECRET_KEY]


def _derived(text: str, purpose: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(text.encode())
