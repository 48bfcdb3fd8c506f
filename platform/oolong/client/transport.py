"""Build a request, decide whether to retry it, decode the response. Shared by both clients."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import TypeAdapter, ValidationError

from oolong.client.errors import ApiError, OolongError, error_of
from oolong.client.request_spec import RequestSpec
from oolong.contracts.model_faults import non_finite

T = TypeVar("T")

RETRIED = frozenset({408, 425, 429, 502, 503, 504})
CHUNK_BYTES = 256 * 1024
WARN_BEFORE = timedelta(days=14)


class TokenExpiresSoon(UserWarning):
    """The token of this client ends within two weeks."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and how long between. What the server asks for with Retry-After counts, up to `longest`."""

    tries: int = 6
    first_seconds: float = 0.25
    longest_seconds: float = 20.0

    def wait(self, failures: int, retry_after: float | None) -> float:
        doubled = self.first_seconds * 2.0 ** (failures - 1) * (0.5 + random.random() / 2)
        return min(self.longest_seconds, max(doubled, retry_after or 0.0))


def new_request(
    http: httpx.Client | httpx.AsyncClient,
    spec: RequestSpec[Any],
    *,
    content: Iterator[bytes] | AsyncIterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> httpx.Request:
    """Build the HTTP request; `content` is a streamed body, `headers` add to those of the spec."""
    if (path := non_finite(spec.body)) is not None:
        pointer = "".join(f"/{part}" for part in path)
        raise OolongError(f"{pointer}: NaN and infinities are no JSON; give a finite number")
    all_headers = {
        **spec.headers,
        **({"Idempotency-Key": spec.key} if spec.key else {}),
        **(headers or {}),
    }
    request = http.build_request(
        spec.method,
        spec.path,
        params=dict(spec.params),
        headers=all_headers,
        json=spec.body,
        content=content if content is not None else spec.content,
    )
    if timeout_seconds is not None:
        request.extensions["timeout"].update(read=timeout_seconds, write=timeout_seconds)
    return request


def is_retryable(response: httpx.Response, *, repeatable: bool) -> bool:
    """Whether to retry. `repeatable`: repeating the request does no harm."""
    if response.status_code == 429 and problem_code(response) == "rate_limited":
        return True  # refused before anything was done
    if response.status_code == 409:  # an earlier try of the same request is still in progress
        return repeatable and problem_code(response) == "idempotency_in_flight"
    return repeatable and response.status_code in RETRIED


def retry_after(response: httpx.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.replace(".", "", 1).isdigit() else None


def decode_response(spec: RequestSpec[T], response: httpx.Response) -> T:
    """The typed answer, or the typed error."""
    if "Deprecation" in response.headers:
        warnings.warn(
            f"{spec.method} {spec.path} goes away on {response.headers.get('Sunset', 'a day to be announced')}; "
            f"instead: {response.headers.get('Link', 'see the changelog')}",
            DeprecationWarning,
            stacklevel=2,
        )
    if ends := response.headers.get("X-Oolong-Token-Expires"):
        warn_before_expiry(ends)
    if not response.is_success:
        raise error_answer(response)
    if spec.answer is None:
        return _json(response) if response.content else None  # type: ignore[return-value]
    if spec.answer is bytes:
        return response.content  # type: ignore[return-value]
    try:
        return TypeAdapter(spec.answer).validate_json(response.content)
    except ValidationError as error:
        raise OolongError(
            f"{spec.method} {spec.path}: the server's answer is not a {spec.answer.__name__}; is this a control plane "
            f"of another version? {error.errors(include_url=False, include_input=False)[:3]}"
        ) from error


def warn_before_expiry(ends: str) -> None:
    left = datetime.fromisoformat(ends) - datetime.now(UTC)
    if left < WARN_BEFORE:
        warnings.warn(
            f"this token expires at {ends}, in {max(0, left.days)} days; make another: oolong token create, or "
            "oolong service-account token",
            TokenExpiresSoon,
            stacklevel=3,
        )


def error_answer(response: httpx.Response) -> ApiError:
    """The typed error of an answer that is one; its body must have been read."""
    return error_of(response.status_code, _json(response))


def problem_code(response: httpx.Response) -> str:
    document = _json(response)
    return str(document.get("code", "")) if isinstance(document, dict) else ""


def file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


@dataclass
class LineReader:
    """Bytes as they come, as lines: ended by LF or CRLF alone. JSON may hold every other line break of Unicode."""

    rest: bytes = b""

    def feed(self, data: bytes) -> list[str]:
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [line.removesuffix(b"\r").decode() for line in whole]


@dataclass
class EventReader:
    """Turns lines of a `text/event-stream` into events (WHATWG HTML, section 9.2.6)."""

    data: str = ""
    event: str = ""
    id: str = ""

    def feed(self, line: str) -> tuple[str, str, str] | None:
        """One line without its end; (event, id, data) when it completes an event."""
        if line == "":
            done = (self.event or "message", self.id, self.data.removesuffix("\n"))
            had_data = bool(self.data)
            self.data = self.event = ""
            return done if had_data else None
        if line.startswith(":"):
            return None  # a comment keeps the connection open
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self.data += value + "\n"
        elif name == "event":
            self.event = value
        elif name == "id":
            self.id = value
        return None


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
