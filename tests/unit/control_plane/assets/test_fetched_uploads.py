"""A dataset file by its URL: what is kept, what is refused, and what a project may have under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.db import connection

from control_plane.assets import services
from control_plane.assets.models import FetchUnderWay, Upload
from control_plane.assets.storage import store
from oolong.system import safe_http

PUBLIC = "93.184.216.34"
Answer = Callable[[httpx.Request], httpx.Response]


def answering(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    plain = safe_http.download

    def connected(url: str, **limits: Any) -> Any:
        transport = httpx.MockTransport(answer)
        return plain(url, **limits, resolve=lambda host, port: [PUBLIC], transport=transport)

    monkeypatch.setattr(services, "download", connected)


def rows_csv(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, stream=httpx.ByteStream(b"q,a\n1,2\n"))


def test_a_file_is_fetched_into_an_upload(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, rows_csv)
    reply = alice.post("/uploads/fetch", {"url": "https://example.org/data/rows.csv?download=1"})
    assert reply.status_code == 201, reply.content
    assert (reply.json()["filename"], reply.json()["bytes"]) == ("rows.csv", 8)


def test_an_address_without_bytes_leaves_nothing(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Upload.objects.count(), {blob.sha256 for blob in store.listed()}
    answering(monkeypatch, lambda _: httpx.Response(200, stream=httpx.ByteStream(b"")))
    reply = alice.post("/uploads/fetch", {"url": "https://example.org/empty.csv"})
    assert (reply.status_code, reply.json()["code"]) == (422, "empty")
    assert (
        reply.json()["errors"][0]["pointer"] == "/url" and "example.org/empty.csv" in reply.json()["detail"]
    )
    assert (Upload.objects.count(), {blob.sha256 for blob in store.listed()}) == before


@pytest.mark.parametrize(
    ("url", "code"),
    [("http://example.org/a", "address_blocked"), ("https://127.0.0.1/a", "address_blocked"),
     ("https://localhost:8443/a", "address_blocked"), ("https://nothing.invalid/", "fetch_failed")],
)  # fmt: skip
def test_a_refused_address_is_a_refusal_with_its_reason(alice: Any, url: str, code: str) -> None:
    before = Upload.objects.count()
    reply = alice.post("/uploads/fetch", {"url": url})
    assert (reply.status_code, reply.json()["code"]) == (422, code)
    assert reply.json()["errors"][0]["pointer"] == "/url" and Upload.objects.count() == before


def test_a_project_fetches_no_more_at_once_than_its_share(
    alice: Any, person: Any, clock: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, project_fetches=1)
    other = person("bob", project="another")
    concurrent: list[Any] = []

    def slow(request: httpx.Request) -> httpx.Response:
        answering(monkeypatch, rows_csv)
        concurrent.extend(
            who.post("/uploads/fetch", {"url": "https://example.org/b"}) for who in (alice, other)
        )
        return rows_csv(request)

    answering(monkeypatch, slow)
    assert alice.post("/uploads/fetch", {"url": "https://example.org/a"}).status_code == 201
    refused, elsewhere = concurrent
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_fetches")
    assert refused["Retry-After"] == "5" and elsewhere.status_code == 201
    assert alice.post("/uploads/fetch", {"url": "https://example.org/c"}).status_code == 201, "it has ended"
    FetchUnderWay.objects.create(project=alice.project, until=clock.now + timedelta(seconds=1))  # was killed
    assert alice.post("/uploads/fetch", {"url": "https://example.org/d"}).status_code == 429
    clock.forward(2)
    assert alice.post("/uploads/fetch", {"url": "https://example.org/d"}).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_who_waits_for_a_stranger_holds_no_connection_of_the_database(
    alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        held.append(connection.connection)
        return rows_csv(request)

    answering(monkeypatch, answer)
    assert alice.post("/uploads/fetch", {"url": "https://example.org/a"}).status_code == 201
    assert held == [None]
