"""Who asks, and with which token."""

from __future__ import annotations

from datetime import datetime

from oolong.client.models.answer import Answer, Named


class User(Answer):
    id: str
    username: str


class MeToken(Answer):
    id: str
    name: str
    expires_at: datetime | None = None  # None: never


class Me(Answer):
    user: User
    team: Named
    project: Named
    role: str
    scopes: list[str]
    token: MeToken | None = None  # of this request


class Health(Answer):
    db: str
    broker: str


class Token(Answer):
    id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    owner: str = ""
    previous_until: datetime | None = None  # the secret before the last rotation goes on until then


class CreatedToken(Token):
    token: str  # shown once


class StreamTicket(Answer):
    """Opens one stream, once, for who can send no header."""

    ticket: str
    expires_at: datetime
