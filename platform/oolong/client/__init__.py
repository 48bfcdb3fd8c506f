"""The Python SDK: `from oolong.client import Client`, or `AsyncClient` with the same calls awaited."""

from oolong.client import models
from oolong.client.aio.client import AsyncClient
from oolong.client.errors import (
    ApiError,
    BadAddress,
    Conflict,
    Gone,
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
from oolong.client.sync.client import Client
from oolong.client.transport import RetryPolicy, TokenExpiresSoon

__all__ = [
    "ApiError",
    "AsyncClient",
    "BadAddress",
    "Client",
    "Conflict",
    "Gone",
    "Invalid",
    "NotAllowed",
    "NotAuthenticated",
    "NotConfigured",
    "NotFound",
    "OolongError",
    "RetryPolicy",
    "ServerError",
    "StreamGap",
    "TokenExpiresSoon",
    "TooManyRequests",
    "Unreachable",
    "models",
]
