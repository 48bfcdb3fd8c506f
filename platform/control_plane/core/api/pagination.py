"""Cursor pages over a sortable key: `?limit=&cursor=` → {"data", "next_cursor", "has_more"}."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet
from rest_framework.request import Request

from control_plane.core.api.errors import FieldError, Problem, unprocessable
from control_plane.core.api.numbers import parse_int

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
MOST_CURSOR = 2000  # characters; a key is a short text


@dataclass(frozen=True)
class Page:
    limit: int
    after: str | None  # the key of the last item of the page before


def read_page(request: Request, *, maximum: int = MAX_LIMIT) -> Page:
    limit_text = request.query_params.get("limit", str(DEFAULT_LIMIT))
    limit = parse_int(limit_text)
    if limit is None or not 1 <= limit <= maximum:
        raise unprocessable(
            "invalid",
            f"limit={limit_text[:40]!r}: a whole number from 1 to {maximum}",
            [FieldError("/limit", "out_of_range", f"limit must be a whole number from 1 to {maximum}")],
        )
    cursor = request.query_params.get("cursor", "")
    return Page(limit, _decode(cursor) if cursor else None)


def paginate(
    rows: QuerySet[Any],
    page: Page,
    render: Callable[[Any], dict[str, Any]],
    *,
    key: str = "pk",
    newest_first: bool = True,
) -> dict[str, Any]:
    """One page of `rows` in the order of `key`, a unique sortable column."""
    return paginate_together(
        rows, page, lambda shown: [render(row) for row in shown], key=key, newest_first=newest_first
    )


def paginate_together(
    rows: QuerySet[Any],
    page: Page,
    render: Callable[[list[Any]], list[dict[str, Any]]],
    *,
    key: str = "pk",
    newest_first: bool = True,
) -> dict[str, Any]:
    """Like `paginate`, for rows whose looks cost a query: `render` gets all that the page shows at once."""
    if page.after is not None:
        try:
            rows = rows.filter(**{f"{key}__{'lt' if newest_first else 'gt'}": page.after})
        except ValueError as error:  # the key is a number and this is none
            raise foreign_cursor(encode(page.after)) from error
    found = list(rows.order_by(f"-{key}" if newest_first else key)[: page.limit + 1])
    shown = found[: page.limit]
    has_more = len(found) > page.limit
    return {
        "data": render(shown),
        "next_cursor": encode(str(getattr(shown[-1], key))) if has_more else None,
        "has_more": has_more,
    }


def paginate_sorted(
    rows: QuerySet[Any],
    page: Page,
    render: Callable[[list[Any]], list[dict[str, Any]]],
    *,
    column: Callable[[datetime], Any],
    read: Callable[[str], Any],
    write: Callable[[Any], str],
    descending: bool,
    now: datetime,
) -> dict[str, Any]:
    """One page in the order of an expression that is never null; rows of one value in the order of their key.

    `column` gets the time of the first page on every page: an order by elapsed time does not shift between them.
    """
    side = "lt" if descending else "gt"
    as_of = now
    if page.after is not None:
        try:
            text, key, moment = json.loads(page.after)
            value, as_of = read(text), datetime.fromisoformat(moment)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise foreign_cursor(encode(page.after)) from error
        if as_of.tzinfo is None:
            raise foreign_cursor(encode(page.after))
    rows = rows.annotate(sort_key=column(as_of))
    if page.after is not None:
        rows = rows.filter(
            Q(**{f"sort_key__{side}": value}) | Q(**{"sort_key": value, f"pk__{side}": str(key)})
        )
    sign = "-" if descending else ""
    found = list(rows.order_by(f"{sign}sort_key", f"{sign}pk")[: page.limit + 1])
    shown = found[: page.limit]
    has_more = len(found) > page.limit
    return {
        "data": render(shown),
        "next_cursor": encode(json.dumps([write(shown[-1].sort_key), shown[-1].pk, as_of.isoformat()]))
        if has_more
        else None,
        "has_more": has_more,
    }


def whole_page(items: list[dict[str, Any]]) -> dict[str, Any]:
    """A list that always fits one page."""
    return {"data": items, "next_cursor": None, "has_more": False}


def encode(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


def _decode(cursor: str) -> str:
    if len(cursor) > MOST_CURSOR:
        raise foreign_cursor(cursor)
    try:
        key = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise foreign_cursor(cursor) from error
    if not key.isprintable():
        raise foreign_cursor(cursor)
    return key


def foreign_cursor(cursor: str) -> Problem:
    """One that this list never gave out."""
    return unprocessable(
        "invalid",
        f"cursor={cursor[:80]!r} is not one of ours; take next_cursor of the page before",
        [FieldError("/cursor", "invalid", "not a cursor of this list")],
    )
