"""The Python SDK: `from oolong.client import Client`."""

from oolong.client.errors import (
    ApiError,
    Conflict,
    Invalid,
    NotAllowed,
    NotAuthenticated,
    NotConfigured,
    NotFound,
    OolongError,
    ServerError,
    StreamGap,
    TooManyRequests,
    Unreachable,
)
from oolong.client.exchange import RetryPolicy
from oolong.client.sync_client import Client

__all__ = [
    "ApiError",
    "Client",
    "Conflict",
    "Invalid",
    "NotAllowed",
    "NotAuthenticated",
    "NotConfigured",
    "NotFound",
    "OolongError",
    "RetryPolicy",
    "ServerError",
    "StreamGap",
    "TooManyRequests",
    "Unreachable",
]
