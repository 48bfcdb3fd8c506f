"""Accept an invitation as a new user, who has no token yet."""

from __future__ import annotations

from urllib.parse import urlsplit

from oolong.client import models
from oolong.client.request_spec import drop_none, post
from oolong.client.settings import ClientSettings
from oolong.client.sync.connection import Connection
from oolong.client.transport import RetryPolicy


def secret_of(link: str) -> str:
    """The fragment of an invitation link, or the text itself if it is a bare secret."""
    return link.rpartition("#")[2]


def url_of(link: str) -> str:
    """The control plane of the link; "" for a bare secret."""
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def accept_link(
    url: str, secret: str, *, username: str, password: str, token_name: str | None = None
) -> models.Accepted:
    """Create this user and accept the invitation. Raises the errors of `oolong.client.errors`."""
    connection = Connection(
        ClientSettings(url.rstrip("/"), ""), retries=RetryPolicy(), timeout_seconds=60.0, transport=None
    )
    try:
        who = drop_none({"username": username, "password": password, "token_name": token_name})
        # Without a key: an invitation is accepted once; a repeat after a lost answer would say that it is used up.
        return connection.send(
            post("invitations/accept", models.Accepted, body={"secret": secret, **who}, keyed=False)
        )
    finally:
        connection.close()
