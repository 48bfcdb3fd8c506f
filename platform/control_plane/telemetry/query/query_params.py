"""Read and check query parameters. An error names the parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rest_framework.request import Request

from control_plane.core.api.query_params import invalid_parameter


def one_of(request: Request, name: str, allowed: Sequence[str]) -> str:
    text = request.query_params.get(name, "")
    if text and text not in allowed:
        raise invalid_parameter(name, f"{name}={text!r}: {' or '.join(allowed)}")
    return text


def whole_number(request: Request, name: str, *, lowest: int = -(2**62), highest: int = 2**62) -> int | None:
    text = request.query_params.get(name)
    if text is None or text == "":
        return None
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not lowest <= number <= highest:
        allowed = (
            f" from {lowest} to {highest}"
            if highest < 2**62
            else f" of at least {lowest}"
            if lowest == 0
            else ""
        )
        raise invalid_parameter(name, f"{name}={text!r}: a whole number{allowed}")
    return number


def number(request: Request, name: str) -> float | None:
    text = request.query_params.get(name, "")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise invalid_parameter(name, f"{name}={text!r}: a finite number")
    return value


def short_text(request: Request, name: str, *, most: int) -> str:
    text = request.query_params.get(name, "")
    if len(text) > most:
        raise invalid_parameter(name, f"{name} has {len(text)} characters; {most} at most")
    return text


def id_list(request: Request, name: str, *, most: int) -> list[str]:
    """Comma-separated ids, each once, in the order given. 422 for none and for more than `most`."""
    ids = [text for text in request.query_params.get(name, "").split(",") if text]
    if not ids:
        raise invalid_parameter(name, f"{name}= is missing: one id or more, comma-separated", "required")
    if len(ids) > most:
        raise invalid_parameter(name, f"{name} has {len(ids)} ids; {most} at most")
    return list(dict.fromkeys(ids))
