"""Secrets that we hand out once and keep only as SHA-256."""

from __future__ import annotations

import hashlib
import secrets

TOKEN_PREFIX = "ool_"
NODE_PREFIX = "oolnode_"
JOIN_TOKEN_PREFIX = "ooljoin_"
INVITATION_PREFIX = "oolinvite_"


def new_secret(prefix: str) -> str:
    return prefix + secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
