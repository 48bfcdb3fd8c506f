"""Serves the built dashboard: hashed assets by whitenoise, index.html for every page address."""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import Any

import drf_spectacular_sidecar
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware

from control_plane.core.api.errors import problem_response

_SWAGGER = (
    Path(drf_spectacular_sidecar.__file__).parent / "static"
)  # the page of GET /api/v1/docs, without a CDN
_NOT_BUILT = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Oolong</title>
<body style="font: 16px/1.5 system-ui; max-width: 42rem; margin: 4rem auto; padding: 0 1rem">
<h1>Oolong runs, but its dashboard is not built</h1>
<p>Build it with <code>npm ci &amp;&amp; npm run build</code> in <code>webui/</code>, or run
<code>make webui</code>. The API is at <a href="/api/v1/openapi.json">/api/v1</a> and the
<code>oolong</code> command works without the dashboard.</p>"""


class DashboardMiddleware(WhiteNoiseMiddleware):
    """whitenoise rooted at the dist folder; it answers only for files that are there.

    whitenoise alone is synchronous, and one such middleware keeps a thread busy for as long as a request waits.
    """

    async_capable = True

    def __init__(self, get_response=None) -> None:  # type: ignore[no-untyped-def]
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)
        self.add_files(str(_SWAGGER), prefix="/static/")
        dist = settings.ENVIRONMENT.webui_dist
        if dist.is_dir():
            self.add_files(str(dist), prefix="/")

    def __call__(self, request: HttpRequest) -> Any:
        if not iscoroutinefunction(self):
            return super().__call__(request)
        path = request.path_info
        found = self.find_file(path) if self.autorefresh else self.files.get(path)
        return self.get_response(request) if found is None else self._sent(found, request)

    async def _sent(self, file: Any, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.serve)(file, request)  # type: ignore[no-any-return]

    def immutable_file_test(self, path: str, url: str) -> bool:
        return url.startswith("/assets/")  # Vite puts a content hash into these names


def dashboard(request: HttpRequest, path: str = "") -> HttpResponse:
    """Any address that is not the API's: the single page finds its own way from there."""
    if path.startswith("assets/"):
        return _asset_built_since(request, path)
    index = settings.ENVIRONMENT.webui_dist / "index.html"
    if not index.is_file():
        return HttpResponse(_NOT_BUILT)
    response = HttpResponse(index.read_bytes(), content_type="text/html; charset=utf-8")
    response["Cache-Control"] = "no-cache"
    return response


def _asset_built_since(request: HttpRequest, path: str) -> HttpResponse:
    """An asset that whitenoise did not find when this process started: the dashboard has been built again."""
    file = settings.ENVIRONMENT.webui_dist / path
    if ".." in path or not file.is_file():
        # A page in its place would only confuse the browser, which expects a script.
        return problem_response(request, 404, "not_found", f"there is nothing at {request.path}")
    kind, _ = mimetypes.guess_type(file.name)
    response = HttpResponse(file.read_bytes(), content_type=kind or "application/octet-stream")
    response["Cache-Control"] = "public, max-age=31536000, immutable"
    return response
