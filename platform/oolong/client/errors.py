"""What can go wrong between a client and the control plane, typed by what the caller can do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FieldError:
    pointer: str  # JSON pointer to the field, "/rollout/top_p", "/rows/17/answer"
    code: str
    message: str


class OolongError(Exception):
    """Base of everything this package raises."""


class NotConfigured(OolongError):
    """No control plane or no token is known; the message says how to name them."""


class BadAddress(OolongError):
    """What was given as the URL of the control plane is none."""


class Unreachable(OolongError):
    """The control plane did not answer, also after the retries."""


class ApiError(OolongError):
    """An application/problem+json answer. `code` is stable; `errors` point to fields."""

    def __init__(
        self,
        status: int,
        *,
        code: str = "",
        detail: str = "",
        errors: tuple[FieldError, ...] = (),
        request_id: str = "",
    ) -> None:
        super().__init__(detail or code or f"HTTP status {status}")
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = errors
        self.request_id = request_id

    def __str__(self) -> str:
        said = super().__str__()
        lines = [said]
        for error in self.errors:
            # The detail tells of a single fault, often word by word: it need not be said twice.
            alone = len(self.errors) == 1 and error.pointer.count("/") == 1
            place = error.pointer.removeprefix("/") if alone else error.pointer
            if error.message not in said or place not in said:
                lines.append(f"  {error.pointer or '/'}: {error.message}")
        if self.status >= 500 and self.request_id:
            lines.append(f"  request id {self.request_id}")
        return "\n".join(lines)


class NotAuthenticated(ApiError):
    """401: no token, or one that is unknown, revoked or expired."""


class NotAllowed(ApiError):
    """403: the token lacks a scope, or its owner a role."""


class NotFound(ApiError):
    """404: it does not exist, or belongs to somebody else."""


class Conflict(ApiError):
    """409: the thing is in a state that does not allow this."""


class Gone(ApiError):
    """410: it was there, and is over: a dropped session, a run that needs no more rollouts."""


class Invalid(ApiError):
    """400, 413 or 422: the request is wrong; `errors` say where."""


class TooManyRequests(ApiError):
    """429, also after the retries."""


class ServerError(ApiError):
    """5xx, also after the retries."""


class StreamGap(OolongError):
    """Frames were missed that the server no longer holds: fetch the state again."""

    def __init__(self, topic: str, first: int, last: int) -> None:
        super().__init__(f"frames {first} to {last} of {topic} are gone; fetch the state again")
        self.topic = topic
        self.first = first
        self.last = last


def error_of(status: int, document: Any) -> ApiError:
    """The typed error of an answer; `document` is its decoded JSON, or None when it had none."""
    problem: dict[str, Any] = document if isinstance(document, dict) else {}
    if isinstance(inner := problem.get("error"), dict):  # of a session, in OpenAI's form
        problem = {"code": inner.get("code"), "detail": inner.get("message")}
    return _kind(status)(
        status,
        code=str(problem.get("code", "")),
        detail=str(problem.get("detail") or problem.get("title") or ""),
        errors=tuple(
            FieldError(
                str(error.get("pointer", "")), str(error.get("code", "")), str(error.get("message", ""))
            )
            for error in problem.get("errors") or []
        ),
        request_id=str(problem.get("request_id", "")),
    )


def _kind(status: int) -> type[ApiError]:
    by_status: dict[int, type[ApiError]] = {
        400: Invalid, 401: NotAuthenticated, 403: NotAllowed, 404: NotFound, 409: Conflict, 410: Gone, 412: Conflict,
        413: Invalid, 422: Invalid, 429: TooManyRequests,
    }  # fmt: skip
    return by_status.get(status, ServerError if status >= 500 else ApiError)
