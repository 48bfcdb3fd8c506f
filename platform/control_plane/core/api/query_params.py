"""Query parameters of lists and exports, and CSV cells that no spreadsheet evaluates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from control_plane.core.api.errors import FieldError, Problem, unprocessable
from oolong.contracts.error_words import shown


def invalid_parameter(name: str, message: str, code: str = "invalid") -> Problem:
    return unprocessable("invalid", message, [FieldError(f"/{name}", code, message)])


def choice(request: Request, name: str, allowed: Sequence[str]) -> str:
    """Read a parameter with fixed values. Empty when absent; 422 for another value."""
    text = request.query_params.get(name, "")
    if name in request.query_params and text not in allowed:
        raise invalid_parameter(name, f"{name}={shown(text)}: one of {', '.join(allowed)}")
    return text


def read_moment(request: Request, name: str) -> datetime | None:
    """Read a time. None when absent; 422 when it is not a time."""
    text = request.query_params.get(name)
    if not text:
        return None
    try:
        return serializers.DateTimeField().to_internal_value(text)
    except (serializers.ValidationError, OverflowError) as error:
        message = f"{name}={shown(text)} is not a time; write it like 2026-11-20T10:00:00Z"
        raise invalid_parameter(name, message) from error


def csv_safe(value: Any) -> Any:
    """Mark a cell that a spreadsheet would evaluate as text."""
    return (
        f"'{value}"
        if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r", "\n")
        else value
    )
