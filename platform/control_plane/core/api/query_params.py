"""What lists and exports share: words and moments out of the address, and cells that no spreadsheet computes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.core.api.errors import FieldError, Problem, unprocessable
from control_plane.core.api.validation_messages import MOST_SHOWN


def refused(name: str, message: str, code: str = "invalid") -> Problem:
    return unprocessable("invalid", message, [FieldError(f"/{name}", code, message)])


def one_of(request: Request, name: str, allowed: Sequence[str]) -> str:
    """Empty when it is left out; 422 when it is another word."""
    text = request.query_params.get(name, "")
    if name in request.query_params and text not in allowed:
        raise refused(name, f"{name}={text[:MOST_SHOWN]!r}: one of {', '.join(allowed)}")
    return text


def read_moment(request: Request, name: str) -> datetime | None:
    """None when it is left out; 422 when it is no moment."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        return serializers.DateTimeField().to_internal_value(text)
    except (serializers.ValidationError, OverflowError) as error:
        message = f"{name}={text[:MOST_SHOWN]!r} is no moment; say it like 2026-11-20T10:00:00Z"
        raise refused(name, message) from error


def plain_cell(value: Any) -> Any:
    """A cell that a spreadsheet would compute is marked as text."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")
        else value
    )
