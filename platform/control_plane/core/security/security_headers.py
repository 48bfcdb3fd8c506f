"""What every answer tells the browser to refuse.

Scripts come from this server's files alone: no inline script, no eval. Styles may be inline, because the component
library writes its variables into style elements. Answers of the API are data and may do nothing at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse

_PAGES = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
_DATA = "default-src 'none'; frame-ancestors 'none'"
_PERMISSIONS = ", ".join(
    f"{feature}=()"
    for feature in ("accelerometer", "camera", "geolocation", "gyroscope", "microphone", "payment", "usb")
)
_API = "/api/"
_API_PAGE = "/api/v1/docs"


def protect(response: HttpResponse, path: str) -> None:
    is_data = path.startswith(_API) and path != _API_PAGE
    response.headers.setdefault("Content-Security-Policy", _DATA if is_data else _PAGES)
    response.headers.setdefault("Permissions-Policy", _PERMISSIONS)
    if is_data:
        response.headers.setdefault("Cache-Control", "private, no-cache")


def security_headers(get_response: Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]):  # type: ignore[no-untyped-def]
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> HttpResponse:
            response = await get_response(request)  # type: ignore[misc]
            protect(response, request.path)
            return response

        markcoroutinefunction(middleware)
        return middleware

    def sync_middleware(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        protect(response, request.path)  # type: ignore[arg-type]
        return response  # type: ignore[return-value]

    return sync_middleware


security_headers.async_capable = True  # type: ignore[attr-defined]
security_headers.sync_capable = True  # type: ignore[attr-defined]
