"""Errors as the API shows them: application/problem+json (RFC 9457) with a stable `code` and field pointers.

Services raise `Problem`; the exception handler below is the only place that turns anything into a response.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

from control_plane.core.api.field_error import FieldError
from oolong.tracing import trace_id

log = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
Row = TypeVar("Row")
LOG_IN = "log in, or send Authorization: Bearer ool_…"


class Problem(Exception):
    """A refusal that the caller can act on. `detail` says what was wrong, with the value, and what to do."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: list[FieldError] | None = None,
        headers: dict[str, str] | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail
        self.errors = errors or []
        self.headers = headers or {}
        self.extra = extra


def not_found(noun: str, identity: str) -> Problem:
    """The same answer for what does not exist and for what belongs to somebody else."""
    return Problem(404, "not_found", f"there is no {noun} {identity!r}")


def or_not_found(row: Row | None, noun: str, identity: str) -> Row:
    """The row; raises `not_found` where there is none."""
    if row is None:
        raise not_found(noun, identity)
    return row


def unprocessable(code: str, detail: str, errors: list[FieldError] | None = None) -> Problem:
    return Problem(422, code, detail, errors=errors)


def conflict(code: str, detail: str, **extra: Any) -> Problem:
    return Problem(409, code, detail, **extra)


def stale_epoch(detail: str) -> Problem:
    return Problem(409, "stale_epoch", detail)


def problem_document(
    status: int, code: str, detail: str, request_id: str, errors: list[FieldError] | None = None, **extra: Any
) -> dict[str, Any]:
    traced = {"trace_id": trace} if (trace := trace_id()) else {}
    return {
        "type": f"/docs/errors#{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "request_id": request_id,
        "errors": [error.as_json() for error in errors or []],
        **traced,
        **extra,
    }


def exception_handler(exception: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's hook. Unknown exceptions return None, so Django logs them and answers 500."""
    request = context.get("request")
    request_id = getattr(getattr(request, "_request", request), "request_id", "")
    if isinstance(exception, Problem):
        document = problem_document(
            exception.status,
            exception.code,
            exception.detail,
            request_id,
            exception.errors,
            **exception.extra,
        )
        return Response(
            document, status=exception.status, headers=exception.headers, content_type=CONTENT_TYPE
        )
    if isinstance(exception, Http404 | ObjectDoesNotExist):
        return Response(
            problem_document(404, "not_found", "not found", request_id), status=404, content_type=CONTENT_TYPE
        )
    if isinstance(exception, PermissionDenied):
        exception = exceptions.PermissionDenied(str(exception) or None)
    if isinstance(exception, exceptions.ValidationError):
        errors = _field_errors(exception.get_full_details(), "")
        detail = "; ".join(_said(error) for error in errors[:3]) or "the request is invalid"
        return Response(
            problem_document(422, "invalid", detail, request_id, errors),
            status=422,
            content_type=CONTENT_TYPE,
        )
    if isinstance(exception, exceptions.APIException):
        headers = {}
        if exception.detail == exceptions.NotAuthenticated.default_detail:  # it names no way out
            exception.detail = exceptions.ErrorDetail(LOG_IN, "not_authenticated")
        if challenge := getattr(exception, "auth_header", None):
            headers["WWW-Authenticate"] = challenge
        if wait := getattr(exception, "wait", None):
            headers["Retry-After"] = str(int(wait))
        code = exception.get_codes()
        return Response(
            problem_document(
                exception.status_code,
                code if isinstance(code, str) else "error",
                str(exception.detail),
                request_id,
            ),
            status=exception.status_code,
            headers=headers,
            content_type=CONTENT_TYPE,
        )
    return None


def _said(error: FieldError) -> str:
    return f"{error.pointer}: {error.message}" if error.pointer else error.message


def _field_errors(details: Any, pointer: str) -> list[FieldError]:
    if isinstance(details, dict) and set(details) == {"message", "code"}:
        return [FieldError(pointer, str(details["code"]), str(details["message"]))]
    if isinstance(details, dict):
        found = []
        for name, value in details.items():
            inner = pointer if name == "non_field_errors" else f"{pointer}/{name}"
            found += _field_errors(value, inner)
        return found
    if isinstance(details, list):
        found = []
        for index, value in enumerate(details):
            plain = isinstance(value, dict) and set(value) == {"message", "code"}
            found += _field_errors(value, pointer if plain else f"{pointer}/{index}")
        return found
    return []


def problem_response(
    request: HttpRequest,
    status: int,
    code: str,
    detail: str,
    errors: list[FieldError] | None = None,
    *,
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """The same document from a place that DRF does not reach."""
    return JsonResponse(
        problem_document(status, code, detail, getattr(request, "request_id", ""), errors),
        status=status,
        content_type=CONTENT_TYPE,
        headers=headers,
    )


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    return problem_response(
        request,
        403,
        "csrf",
        f"{reason} Send the header X-CSRFToken with the value of GET /api/v1/session/csrf.",
    )


def not_found_view(request: HttpRequest, exception: Exception) -> HttpResponse:
    return problem_response(request, 404, "not_found", f"there is nothing at {request.path}")


def server_error_view(request: HttpRequest) -> HttpResponse:
    return problem_response(
        request, 500, "internal", "an unexpected error; the server's log has the request id"
    )
