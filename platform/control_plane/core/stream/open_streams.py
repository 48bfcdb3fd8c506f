"""How many live streams (WebSockets, server-sent events) are open in this process, and how many may be.

An address may have few streams whose caller is not known yet, and more of known callers; a user may have so many from
everywhere. The counts are of one web process, so they need no clean-up after one that was killed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cache

from django.conf import settings

from control_plane.core.security.forwarded import network_of

UNKNOWN_PER_ADDRESS = 50  # sockets that have not said yet who they are, for ten seconds at most


class TooManyStreams(Exception):
    """The message says whose they are, how many may be open, and what to do."""


@dataclass
class StreamLimits:
    per_user: int  # 0: no limit
    per_address: int
    unknown_per_address: int = UNKNOWN_PER_ADDRESS
    _unknown: Counter[str] = field(default_factory=Counter)
    _addresses: Counter[str] = field(default_factory=Counter)
    _users: Counter[str] = field(default_factory=Counter)

    def open(self, address: str) -> OpenStream:
        """Count a stream of a caller who is not known yet. Raises TooManyStreams."""
        network = network_of(address)
        if 0 < self.unknown_per_address <= self._unknown[network]:
            raise TooManyStreams(
                f"{network} has {self._unknown[network]} streams open that have not authenticated; send a token first"
            )
        if 0 < self.per_address <= self._addresses[network]:
            raise TooManyStreams(
                f"{network} has {self._addresses[network]} streams open, which is the limit; close some"
            )
        self._unknown[network] += 1
        self._addresses[network] += 1
        return OpenStream(self, network)


@dataclass
class OpenStream:
    """One counted stream. `close` may be called again."""

    limits: StreamLimits
    network: str
    user: str = ""
    is_open: bool = True

    def identify(self, user: str) -> None:
        """The caller turned out to be this user, perhaps another one than before. Raises TooManyStreams."""
        limits = self.limits
        if user == self.user or not self.is_open:
            return
        if 0 < limits.per_user <= limits._users[user]:
            raise TooManyStreams(
                f"this user has {limits._users[user]} streams open, which is the limit; close some"
            )
        self._leave_owner()
        self.user = user
        limits._users[user] += 1

    def identify_node(self) -> None:
        """A node has one socket, and many nodes may share an address: it counts no longer."""
        self.close()

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._leave_owner()
            _decrement(self.limits._addresses, self.network)

    def _leave_owner(self) -> None:
        if self.user:
            _decrement(self.limits._users, self.user)
        else:
            _decrement(self.limits._unknown, self.network)


def _decrement(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if counts[name] <= 0:
        del counts[name]  # or the table would grow with every address that ever came


@cache
def stream_limits() -> StreamLimits:
    """Those of this process."""
    environment = settings.ENVIRONMENT
    return StreamLimits(per_user=environment.streams_user, per_address=environment.streams_address)
