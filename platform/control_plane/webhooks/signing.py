"""Standard Webhooks signatures (github.com/standard-webhooks/standard-webhooks, version 1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

PREFIX = "whsec_"


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def headers(message_id: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The three headers; one signature per secret, so that a receiver may know either of two."""
    signatures = [signature(message_id, timestamp, body, secret) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def signature(message_id: str, timestamp: int, body: bytes, secret: str) -> str:
    """`v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
