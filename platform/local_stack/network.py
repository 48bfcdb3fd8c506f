"""Whether an installer ended because its connection broke: then the same call goes on where it stopped."""

from __future__ import annotations

import re

ATTEMPTS = 4  # of a download whose connection breaks

# In the words of pip and npm.
UNREACHABLE = (
    r"Temporary failure in name resolution|Name or service not known|NewConnectionError|ConnectionError"
    r"|Network is unreachable|ReadTimeout|ConnectTimeout|ProxyError|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT"
)
BROKEN = (
    r"ProtocolError|IncompleteRead|RemoteDisconnected|Connection (?:broken|aborted|reset)|incomplete-download"
    r"|\b50[0234] (?:Internal|Bad|Service|Gateway|Server)|ECONNRESET|EPIPE|ERR_SOCKET|socket hang up"
    r"|DO NOT MATCH THE HASHES|EINTEGRITY"  # an older pip takes a file that was cut short for a whole one
)


def is_connection_error(said: str) -> bool:
    """Whether these words of an installer tell of its network."""
    return re.search(f"{UNREACHABLE}|{BROKEN}", said) is not None
