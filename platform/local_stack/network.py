"""Detect network failures of pip and npm: running the same command again resumes the download."""

from __future__ import annotations

import re

ATTEMPTS = 4  # to download, when the connection breaks

# Messages of pip and npm.
UNREACHABLE = (
    r"Temporary failure in name resolution|Name or service not known|NewConnectionError|ConnectionError"
    r"|Network is unreachable|ReadTimeout|ConnectTimeout|ProxyError|ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ETIMEDOUT"
)
BROKEN = (
    r"ProtocolError|IncompleteRead|RemoteDisconnected|Connection (?:broken|aborted|reset)|incomplete-download"
    r"|\b50[0234] (?:Internal|Bad|Service|Gateway|Server)|ECONNRESET|EPIPE|ERR_SOCKET|socket hang up"
    r"|DO NOT MATCH THE HASHES|EINTEGRITY"  # an older pip treats a truncated file as complete
)


def is_connection_error(output: str) -> bool:
    """Whether the output of an installer reports a network failure."""
    return re.search(f"{UNREACHABLE}|{BROKEN}", output) is not None
