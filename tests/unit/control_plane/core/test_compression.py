"""What is sent compressed, and what never is."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client, RequestFactory

from control_plane.core.api.compression import SMALLEST_BYTES, accepts_gzip, compress_answers

JSON = json.dumps([{"id": n} for n in range(500)]).encode()


def answered(response: HttpResponse | StreamingHttpResponse, accepts: str = "gzip, br") -> Any:
    request = RequestFactory().get("/api/v1/runs", headers={"Accept-Encoding": accepts})
    ask: Callable[[HttpRequest], Any] = compress_answers(lambda _: response)
    return ask(request)


def test_json_is_compressed_for_who_takes_gzip() -> None:
    reply = answered(HttpResponse(JSON, content_type="application/json", headers={"ETag": '"a"'}))
    assert reply["Content-Encoding"] == "gzip" and gzip.decompress(reply.content) == JSON
    assert (reply["Vary"], reply["ETag"]) == ("Accept-Encoding", '"a"')
    assert int(reply["Content-Length"]) == len(reply.content) < len(JSON) / 2
    plain = answered(HttpResponse(JSON, content_type="application/json"), accepts="br, gzip;q=0")
    assert (plain.content, plain["Vary"]) == (JSON, "Accept-Encoding") and "Content-Encoding" not in plain


@pytest.mark.parametrize(
    "response",
    [
        lambda: StreamingHttpResponse(iter([JSON]), content_type="text/event-stream"),
        lambda: StreamingHttpResponse(iter([JSON]), content_type="application/json"),
        lambda: HttpResponse(JSON, content_type="application/octet-stream"),
        lambda: HttpResponse(
            JSON, content_type="application/json", headers={"Content-Range": "bytes 0-9/10"}
        ),
        lambda: HttpResponse(JSON, content_type="application/json", headers={"Content-Encoding": "br"}),
        lambda: HttpResponse(b"x" * (SMALLEST_BYTES - 1), content_type="application/json"),
    ],
    ids=["event stream", "other stream", "bytes of a file", "range", "compressed already", "small"],
)
def test_streams_ranges_and_small_answers_are_sent_as_they_are(
    response: Callable[[], HttpResponse | StreamingHttpResponse],
) -> None:
    made = response()
    before = dict(made.items())
    reply = answered(made)
    assert {**before, "Vary": ""} == {**dict(reply.items()), "Vary": ""}
    body = b"".join(reply.streaming_content) if reply.streaming else reply.content
    assert body in (JSON, b"x" * (SMALLEST_BYTES - 1))


@pytest.mark.parametrize(
    ("header", "takes"),
    [("gzip", True), ("GZIP;q=0.5", True), ("*", True), ("br", False), ("", False), ("*;q=0", False),
     ("*;q=1, gzip;q=0", False), ("gzip; q=0", False)],
)  # fmt: skip
def test_who_takes_gzip(header: str, takes: bool) -> None:
    assert accepts_gzip(RequestFactory().get("/", headers={"Accept-Encoding": header})) is takes


def test_the_api_sends_gzip_and_its_etag_still_fits(alice: Any) -> None:
    browser = Client(headers={"Authorization": f"Bearer {alice.token}", "Accept-Encoding": "gzip"})
    reply = browser.get("/api/v1/metrics/definitions")
    assert reply["Content-Encoding"] == "gzip"
    assert json.loads(gzip.decompress(reply.content)) == alice.get("/metrics/definitions").json()
    again = browser.get("/api/v1/metrics/definitions", headers={"If-None-Match": reply["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_a_built_file_is_sent_as_the_build_compressed_it(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "main-abc.js").write_bytes(b"plain")
    (tmp_path / "assets" / "main-abc.js.br").write_bytes(b"b")
    (tmp_path / "assets" / "main-abc.js.gz").write_bytes(b"gz")
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, webui_dist=tmp_path)
    for accepts, content, encoding in (("gzip, br", b"b", "br"), ("gzip", b"gz", "gzip"), ("", b"plain", "")):
        reply = Client().get("/assets/main-abc.js", headers={"Accept-Encoding": accepts})
        assert (b"".join(reply.streaming_content), reply.get("Content-Encoding", "")) == (content, encoding)  # type: ignore[attr-defined]
        assert "Accept-Encoding" in reply["Vary"]
