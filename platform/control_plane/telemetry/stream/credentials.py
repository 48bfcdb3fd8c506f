"""Who is at the other end of a stream. The credential is checked again and again, so that a revoked one ends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from math import inf
from urllib.parse import urlsplit

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from control_plane.accounts import selectors
from control_plane.accounts.identity.authentication import session_caller
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import User
from control_plane.accounts.tokens import tickets
from control_plane.core.infra import clock

EXPIRY_SLACK_SECONDS = 0.1

# Any thread will do: on the usual single one, a thousand sockets that come back at once would queue up.
in_database = partial(database_sync_to_async, thread_sensitive=False)


def seconds_until_expiry(caller: Caller, now: datetime) -> float:
    """Until the caller's token ends by itself, or its secret before a rotation does; infinite for a session.

    A little late rather than early: who asks the database again then finds it ended.
    """
    if caller.token is None:
        return inf
    ends = []
    if caller.token.expires_at is not None:
        ends.append((caller.token.expires_at - now).total_seconds())
    if caller.token.previous_until is not None:
        overlap = (caller.token.previous_until - now).total_seconds()
        if overlap > -EXPIRY_SLACK_SECONDS:  # otherwise it is over, and this is the newer secret
            ends.append(overlap)
    return max(0.0, min(ends, default=inf)) + EXPIRY_SLACK_SECONDS


@dataclass(frozen=True)
class Credential:
    """One of the three: a bearer token, the key of a browser's session, or a ticket that was taken."""

    token: str = ""
    session: str = ""
    ticket: str = ""  # see accounts.tickets
    project: str = ""  # of a session's user: the one that is named, otherwise what the session remembers

    def caller(self) -> Caller | None:
        """Who this is now; None when it is unknown, expired, revoked or logged out."""
        if self.token:
            return selectors.caller_of_token(self.token, now=clock.now())
        if self.ticket:
            return tickets.caller_of_ticket(self.ticket, now=clock.now())
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(self.session)
        user = get_user(request)
        return session_caller(user, request.session, self.project) if isinstance(user, User) else None


def redeem(text: str) -> Credential | None:
    """Exchange a ticket for its credential, once; None if it is unknown, used or expired."""
    taken = tickets.redeem(text, now=clock.now())
    return Credential(ticket=taken) if taken else None


def is_same_origin(*, origin: str, host: str) -> bool:
    """May a page of this origin use the browser's cookies here? Browsers always send an origin with a WebSocket."""
    if not origin or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    return urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS
