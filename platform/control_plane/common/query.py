"""What exports share: a moment out of the address, and a cell that a spreadsheet does not compute."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.common.errors import FieldError, unprocessable


def read_moment(request: Request, name: str) -> datetime | None:
    """None when it is left out; 422 when it is no moment."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        return serializers.DateTimeField().to_internal_value(text)
    except (serializers.ValidationError, OverflowError) as error:
        message = f"{name}={text!r} is no moment; say it like 2026-11-20T10:00:00Z"
        raise unprocessable("invalid", message, [FieldError(f"/{name}", "invalid", message)]) from error


def plain_cell(value: Any) -> Any:
    """A cell that a spreadsheet would compute is marked as text."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")
        else value
    )
