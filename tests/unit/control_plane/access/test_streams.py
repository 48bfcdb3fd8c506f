"""Doors that are no views (the live stream, its SSE twin, the relay, WebSockets) × every kind of caller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from channels.routing import URLRouter
from django.conf import settings
from django.db import connections
from django.test import Client

from control_plane.accounts.tokens.scopes import SCOPES
from control_plane.core.stream.event_hub import hub
from control_plane.routing import websocket_urlpatterns
from control_plane.telemetry.stream import consumers
from control_plane.telemetry.stream.credentials import Credential, in_database
from control_plane.telemetry.stream.topics import readable_topic
from oolong.contracts.relay.endpoints import ENDPOINTS
from tests.unit.control_plane.access.objects import DEAD, World
from tests.unit.control_plane.access.routes import LOWEST_ROLE, ROLES, ROUTES, TOPICS


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asynchronous doors ask the database in the thread whose transaction holds the world."""
    monkeypatch.setitem(in_database.keywords, "thread_sensitive", True)
    monkeypatch.setattr(connections["default"], "close_if_unusable_or_obsolete", lambda: None)
    # Who says who he is does so at once, however long the machine stands still.
    monkeypatch.setattr(consumers, "AUTHENTICATE_SECONDS", 3600.0)


def callers(world: World) -> Iterator[tuple[str, Credential, set[str]]]:
    """Everybody of the project's own: name, credential, scopes."""
    for role in ROLES:
        scopes = {scope for scope in SCOPES if ROLES.index(LOWEST_ROLE[scope]) <= ROLES.index(role)}
        yield role, Credential(token=world.tokens[role]), scopes
        yield f"{role}'s browser", Credential(session=session_of(world, role)), scopes
    for scope in SCOPES:
        yield f"only {scope}", Credential(token=world.tokens[f"only {scope}"]), {scope}


def session_of(world: World, name: str) -> str:
    browser = Client()
    browser.force_login(world.users[name])
    return browser.cookies[settings.SESSION_COOKIE_NAME].value


def test_a_topic_is_received_by_exactly_those_who_may(world: World) -> None:
    known = list(callers(world))
    for topic, need in TOPICS.items():
        named = topic.format_map(world.ids)
        for name, credential, scopes in known:
            caller = credential.caller()
            assert caller is not None, name
            assert (readable_topic(caller, named) is not None) == (need in scopes), (topic, name)


def test_nobody_hears_another_teams_or_projects_topics(world: World) -> None:
    for name in ("another team", "another project"):
        caller = Credential(token=world.tokens[name]).caller()
        assert caller is not None
        for topic in TOPICS:
            heard = readable_topic(caller, topic.format_map(world.ids))
            expected = {"pool": "pool", "runs": f"runs:{caller.project.pk}"}.get(topic)
            assert heard == expected, (topic, name)
    owner = Credential(token=world.tokens["alice"]).caller()
    assert owner is not None
    for made_up in (
        "",
        "run",
        "run:",
        "run::logs",
        "run:none",
        f"runs:{owner.project.pk}",
        "pool:x",
        "run:{run_id}",
    ):
        assert readable_topic(owner, made_up) is None, made_up


def test_a_dead_credential_has_no_caller(world: World) -> None:
    for name in (*DEAD, "node"):
        assert Credential(token=world.tokens[name]).caller() is None, name
    for name in ("left the project", "switched off"):
        assert Credential(session=session_of(world, name)).caller() is None, name


def get(world: World, path: str, bearer: str) -> Any:
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    return Client().get(f"/api/v1{path.format_map(world.ids)}", headers=headers)


def test_the_sse_twin_asks_the_same(world: World) -> None:
    for name in (*DEAD, "node"):
        assert get(world, "/stream?topic=pool", world.tokens[name]).status_code == 401, name
    assert get(world, "/stream?topic=pool", "").status_code == 401
    for topic, need in TOPICS.items():
        path = f"/stream?topic={topic}"
        assert get(world, path, world.tokens[f"only {need}"]).status_code == 200, topic
        other = next(scope for scope in SCOPES if scope != need)
        assert get(world, path, world.tokens[f"only {other}"]).status_code == 404, topic
        if "{run_id}" in topic:
            assert get(world, path, world.tokens["another team"]).status_code == 404, topic


@pytest.mark.parametrize("name", ENDPOINTS)
def test_the_relay_needs_the_scope_of_its_endpoint_and_a_run_of_ones_own(world: World, name: str) -> None:
    need = ROUTES[f"ANY /runs/{{run_id}}/{name}"]
    for path in (f"/runs/{{run_id}}/{name}", f"/runs/{{run_id}}/{name}/x"):
        for dead in (*DEAD, "node"):
            assert get(world, path, world.tokens[dead]).status_code == 401, dead
        assert get(world, path, "").status_code == 401
        browser = Client()
        browser.force_login(world.users["alice"])
        linked = browser.get(f"/api/v1{path.format_map(world.ids)}")
        assert linked.status_code == (403 if ENDPOINTS[name].browser else 401), (
            "no answer without a CSRF token"
        )
        for scope in SCOPES:
            # The run is not running: who may ask has to come back.
            expected = 503 if scope == need else 403
            assert get(world, path, world.tokens[f"only {scope}"]).status_code == expected, scope
        for role in ROLES:
            expected = 503 if ROLES.index(LOWEST_ROLE[need]) <= ROLES.index(role) else 403
            assert get(world, path, world.tokens[role]).status_code == expected, role
        for other in ("another team", "another project"):
            assert get(world, path, world.tokens[other]).status_code == 404, other


async def first_answer(path: str, *messages: dict[str, Any], **headers: str) -> Any:
    """What a socket says after these messages: a close code, or the type of its last frame."""
    scope = {
        "type": "websocket", "path": f"/{path}", "query_string": b"", "subprotocols": [],
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    wire = ApplicationCommunicator(URLRouter(websocket_urlpatterns), scope)
    await wire.send_input({"type": "websocket.connect"})
    assert (await wire.receive_output(timeout=60))["type"] == "websocket.accept"
    for message in messages:
        await wire.send_input({"type": "websocket.receive", "text": json.dumps(message)})
    wanted = {"auth": "authenticated", "subscribe": "subscribed"}[messages[-1]["op"]] if messages else ""
    while True:
        event = await wire.receive_output(timeout=60)
        heard = event.get("code") or json.loads(event["text"])["type"]
        if heard == wanted or event["type"] == "websocket.close":
            break
    await wire.send_input({"type": "websocket.disconnect", "code": 1000})
    await wire.wait(timeout=60)
    return heard


def test_the_live_socket_ends_for_whoever_may_not(world: World) -> None:
    run = {"op": "subscribe", "topic": f"run:{world.ids['run_id']}"}

    async def connect_to_all() -> None:
        for name in (*DEAD, "node"):
            auth = {"op": "auth", "token": world.tokens[name]}
            assert await first_answer("ws/v1", auth) == 4401, name
        assert await first_answer("ws/v1", run) == 4401, "subscribed before it said who it is"
        for name, expected in (
            ("viewer", "subscribed"), ("only runs:read", "subscribed"), ("only pool:read", 4404),
            ("another team", 4404), ("another project", 4404),
        ):  # fmt: skip
            auth = {"op": "auth", "token": world.tokens[name]}
            assert await first_answer("ws/v1", auth, run) == expected, name
        await hub().close()

    async_to_sync(connect_to_all)()


def test_a_browsers_socket_must_come_from_our_own_page(world: World) -> None:
    cookie = f"{settings.SESSION_COOKIE_NAME}={session_of(world, 'viewer')}"
    run = {"op": "subscribe", "topic": f"run:{world.ids['run_id']}"}

    async def connect_to_all() -> None:
        for origin, expected in (
            ("http://testserver", "subscribed"), ("https://evil.example", 4403), ("null", 4403), ("", 4403),
        ):  # fmt: skip
            headers = {"host": "testserver", "origin": origin, "cookie": cookie}
            assert await first_answer("ws/v1", run, **headers) == expected, origin
        await hub().close()

    async_to_sync(connect_to_all)()


def test_the_relays_socket_is_for_nodes_alone(world: World) -> None:
    async def connect_to_all() -> None:
        for name in (*DEAD, "alice"):
            bearer = f"Bearer {world.tokens[name]}"
            assert await first_answer("ws/v1/tunnel", authorization=bearer) == 4401, name
        assert await first_answer("ws/v1/tunnel") == 4401

    async_to_sync(connect_to_all)()
