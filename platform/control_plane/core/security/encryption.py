"""Encryption of stored secrets: AES-256-GCM with a key of the server.

Keys come from OOLONG_SECRETS_KEYS, newest first; without it one is derived from SECRET_KEY. Each encrypted value names
its key, so an old key decrypts its values until `manage.py rotate_secrets` has encrypted everything with the newest.
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


class DecryptionError(Exception):
    """The key is not configured, or the value was changed or belongs to another place."""


@dataclass(frozen=True)
class Sealed:
    key_id: str
    sealed: bytes


def encrypt(value: str, *, place: str) -> Sealed:
    """Encrypt with the newest key. `place` names where the value belongs; decryption elsewhere fails."""
    key_id, key = next(iter(_keys().items()))
    nonce = os.urandom(_NONCE_BYTES)
    return Sealed(key_id, nonce + AESGCM(key).encrypt(nonce, value.encode(), place.encode()))


def decrypt(sealed: Sealed, *, place: str) -> str:
    key = _keys().get(sealed.key_id)
    if key is None:
        raise DecryptionError(
            f"encrypted with the key {sealed.key_id}, which this server does not have; add it to OOLONG_SECRETS_KEYS"
        )
    nonce, text = sealed.sealed[:_NONCE_BYTES], sealed.sealed[_NONCE_BYTES:]
    try:
        return AESGCM(key).decrypt(nonce, text, place.encode()).decode()
    except InvalidTag as error:
        raise DecryptionError(f"the value stored for {place} was changed or belongs elsewhere") from error


def fingerprint(value: str, *, place: str) -> str:
    """Eight characters that change with the value. Guessing the value from them takes the server's newest key."""
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
