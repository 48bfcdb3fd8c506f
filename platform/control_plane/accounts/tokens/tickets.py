"""Tickets for streams: what stands in an address is logged and remembered, so a token has no place there."""

from __future__ import annotations

from datetime import datetime, timedelta

from control_plane.accounts import selectors
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import StreamTicket
from control_plane.accounts.tokens.token_hashing import digest, new_secret

TICKET_PREFIX = "ooltkt_"
TICKET_LIFE = timedelta(seconds=60)


def create_ticket(caller: Caller, *, now: datetime) -> tuple[str, datetime]:
    text = new_secret(TICKET_PREFIX)
    expires_at = now + TICKET_LIFE
    StreamTicket.objects.create(
        sha256=digest(text),
        user=caller.user,
        project=caller.project,
        token=caller.token,
        expires_at=expires_at,
    )
    return text, expires_at


def redeem(text: str, *, now: datetime) -> str | None:
    """The ticket's row, for `caller_of_ticket`; None when it is unknown, used or too old. It works once."""
    sha256 = digest(text)
    taken = StreamTicket.objects.filter(sha256=sha256, used_at=None, expires_at__gt=now).update(used_at=now)
    return sha256 if taken else None


def caller_of_ticket(sha256: str, *, now: datetime) -> Caller | None:
    """Who a taken ticket speaks for at this moment: it ends with the token that it was asked for with."""
    ticket = (
        StreamTicket.objects.filter(sha256=sha256).select_related("user", "project__team", "token").first()
    )
    if ticket is None:
        return None
    token = ticket.token
    if token and (token.revoked_at or (token.expires_at and token.expires_at <= now)):
        return None
    return selectors.caller_in(ticket.user, ticket.project, token)


def prune_tickets(now: datetime) -> None:
    """A stream that was opened with one is asked again who it is, so used ones are kept for a day."""
    StreamTicket.objects.filter(expires_at__lt=now - timedelta(days=1)).delete()
