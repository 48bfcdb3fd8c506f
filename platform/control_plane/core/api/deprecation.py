"""How an operation is taken out: announced in its answers and in the schema, and gone no earlier than it says.

`docs/reference/api-conventions.md` has the policy.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import wraps
from typing import Any

from django.http import HttpResponseBase
from django.utils.http import http_date

SHORTEST_NOTICE_DAYS = 180


def deprecated(*, since: date, sunset: date, instead: str) -> Callable[..., Any]:
    """Decorate a handler: its answers carry Deprecation (RFC 9745), Sunset (RFC 8594) and a Link to `instead`."""
    if (sunset - since).days < SHORTEST_NOTICE_DAYS:
        raise ValueError(
            f"from {since} to {sunset} is less than the {SHORTEST_NOTICE_DAYS} days that callers are promised"
        )

    def decorate(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def wrapped(*args: Any, **kwargs: Any) -> HttpResponseBase:
            response = view(*args, **kwargs)
            response["Deprecation"] = f"@{int(_moment(since))}"
            response["Sunset"] = http_date(_moment(sunset))
            response["Link"] = f'<{instead}>; rel="successor-version"'
            return response

        wrapped.deprecated = True  # type: ignore[attr-defined]  # for the schema
        return wrapped

    return decorate


def _moment(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
