from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.test import AsyncClient

from control_plane.accounts import selectors
from control_plane.accounts.identity import services
from control_plane.accounts.identity.access_events import TOPIC
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import ApiToken, Membership, User
from control_plane.accounts.selectors import caller_of_token
from control_plane.accounts.teams import membership
from control_plane.accounts.tokens import tokens
from control_plane.accounts.tokens.tickets import create_ticket
from control_plane.core.infra import clock
from control_plane.core.stream.event_hub import hub
from control_plane.core.stream.open_streams import StreamLimits
from control_plane.telemetry.stream import consumers, sse
from control_plane.telemetry.stream.credentials import Credential, seconds_until_expiry
from control_plane.telemetry.stream.routing import websocket_urlpatterns
from tests.support.waiting import eventually
from tests.unit.control_plane.telemetry.streaming import apublish, points
from tests.unit.control_plane.telemetry.world import World, build_world

HOST = "testserver"


@pytest_asyncio.fixture
async def world(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(consumers, "AUTHENTICATE_SECONDS", 600.0)  # a slow machine gets there
    yield await database_sync_to_async(build_world)()
    await hub().close()


class Client:
    def __init__(self, *, origin: str | None = None, session: str = "") -> None:
        headers = [(b"host", HOST.encode())]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        if session:
            headers.append((b"cookie", f"a=b; {settings.SESSION_COOKIE_NAME}={session}".encode()))
        scope = {
            "type": "websocket",
            "path": "/ws/v1",
            "headers": headers,
            "query_string": b"",
            "subprotocols": [],
        }
        self.wire = ApplicationCommunicator(URLRouter(websocket_urlpatterns), scope)

    async def connect(self) -> Client:
        await self.wire.send_input({"type": "websocket.connect"})
        assert (await self.wire.receive_output(timeout=60))["type"] == "websocket.accept"
        return self

    async def say(self, **message: Any) -> None:
        await self.say_text(json.dumps(message))

    async def say_text(self, text: str) -> None:
        await self.wire.send_input({"type": "websocket.receive", "text": text})

    async def hear(self, *types: str) -> dict[str, Any]:
        """The next message of one of these types."""
        async with asyncio.timeout(60):
            while True:
                event = await self.wire.receive_output(timeout=60)
                assert event["type"] == "websocket.send", event
                message: dict[str, Any] = json.loads(event["text"])
                if message["type"] in types:
                    return message

    async def close_code(self) -> int:
        async with asyncio.timeout(60):
            while True:
                event = await self.wire.receive_output(timeout=60)
                if event["type"] == "websocket.close":
                    return int(event["code"])

    async def leave(self) -> None:
        await self.wire.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wire.wait(timeout=60)


async def known(world: World, *scopes: str) -> Client:
    token = await database_sync_to_async(world.token)(*scopes)
    client = await Client().connect()
    await client.say(op="auth", token=token)
    await client.hear("authenticated")
    return client


def log_in(world: World) -> str:
    session = SessionStore()
    session[SESSION_KEY] = world.user.pk
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = world.user.get_session_auth_hash()
    session.create()
    return str(session.session_key)


async def test_a_token_subscribes_replays_and_goes_on_live(world: World) -> None:
    topic = f"run:{world.run.pk}"
    await apublish(topic, points(1), points(2), points(3))
    client = await known(world)
    await client.say(op="subscribe", topic=topic, after_seq=1)
    assert await client.hear("subscribed") == {"topic": topic, "type": "subscribed", "seq": 3}
    await apublish(topic, points(4))
    heard = [await client.hear("points") for _ in range(3)]
    assert [frame["seq"] for frame in heard] == [2, 3, 4]
    assert heard[0]["data"] == points(2)[1]

    await client.say(op="unsubscribe", topic=topic)
    await client.say(op="subscribe", topic=topic)
    await client.hear("subscribed")
    await apublish(topic, points(5))
    assert (await client.hear("points"))["seq"] == 5
    await client.leave()


async def test_every_project_has_a_runs_topic_of_its_own(world: World) -> None:
    client = await known(world)
    await client.say(op="subscribe", topic="runs")
    assert (await client.hear("subscribed"))["topic"] == "runs"
    await apublish("runs:somebody else's", ("status", {"id": "run_secret"}))
    await apublish(f"runs:{world.project.pk}", ("status", {"id": "run_own"}))
    frame = await client.hear("status")
    assert (frame["topic"], frame["data"]["id"]) == ("runs", "run_own")
    await client.leave()


async def test_a_foreign_run_ends_the_socket_like_one_that_does_not_exist(world: World) -> None:
    other = await database_sync_to_async(build_world)("two")
    for topic in (f"run:{other.run.pk}", f"run:{other.run.pk}:logs", "run:run_nothing", "secrets"):
        client = await known(world)
        await client.say(op="subscribe", topic=topic)
        assert await client.close_code() == 4404


async def test_a_token_without_the_scope_sees_no_topic(world: World) -> None:
    client = await known(world, "datasets:read")
    await client.say(op="subscribe", topic=f"run:{world.run.pk}")
    assert await client.close_code() == 4404


async def test_a_session_is_taken_only_from_our_own_origin(world: World) -> None:
    session = await database_sync_to_async(log_in)(world)
    client = await Client(session=session, origin=f"http://{HOST}").connect()
    await client.say(op="subscribe", topic=f"run:{world.run.pk}")
    await client.hear("subscribed")
    await client.leave()
    for origin in (None, "http://evil.example", "null", f"http://{HOST}.evil.example"):
        client = await Client(session=session, origin=origin).connect()
        assert await client.close_code() == 4403


async def test_who_does_not_say_who_it_is_gets_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await Client().connect()
    await client.say(op="subscribe", topic=f"run:{world.run.pk}")
    assert await client.close_code() == 4401

    client = await Client().connect()
    await client.say(op="auth", token="ool_made_up")
    assert await client.close_code() == 4401

    monkeypatch.setattr(consumers, "AUTHENTICATE_SECONDS", 0.05)
    client = await Client().connect()
    assert await client.close_code() == 4401


async def test_a_revoked_token_ends_the_socket(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "PING_SECONDS", 0.05)
    monkeypatch.setattr(consumers, "RECHECK_SECONDS", 0.1)
    client = await known(world)
    await client.say(op="subscribe", topic=f"run:{world.run.pk}")
    await client.hear("ping")
    await database_sync_to_async(ApiToken.objects.update)(revoked_at=clock.now())
    assert await client.close_code() == 4401


async def changes_of_power_are_heard() -> None:
    await eventually(
        lambda: (feed := hub()._feeds.get(TOPIC)) and feed.last is not None, "changes of power are heard"
    )


async def test_whoever_loses_power_loses_the_socket_at_once(world: World) -> None:
    """Nothing here is hurried: the slow recheck of a minute is not what ends these sockets."""
    colleague = await database_sync_to_async(admin_of)(world)

    client = await known(world)
    token = await database_sync_to_async(ApiToken.objects.latest)("pk")
    await database_sync_to_async(tokens.revoke_token)(colleague, token.pk, now=clock.now())
    assert await client.close_code() == 4401

    client = await known(world)
    await client.say(op="subscribe", topic=f"run:{world.run.pk}")
    await client.hear("subscribed")
    remove = database_sync_to_async(membership.remove_member)
    await remove(colleague, "project", world.user.pk, now=clock.now())
    assert await client.close_code() == 4401


async def test_whoever_loses_power_loses_the_sse_twin_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 600.0)  # nothing else is said, however late the news comes
    colleague = await database_sync_to_async(admin_of)(world)
    text = await database_sync_to_async(world.token)()
    token = await database_sync_to_async(ApiToken.objects.latest)("pk")
    headers = {"authorization": f"Bearer {text}"}
    reply = await AsyncClient().get(f"/api/v1/stream?topic=run:{world.run.pk}", headers=headers)
    heard = aiter(reply.streaming_content)
    assert b"event: subscribed" in await anext(heard)
    await changes_of_power_are_heard()
    await apublish(f"run:{world.run.pk}", points(1))
    assert b"event: points" in await anext(heard), "it has asked once more who is there, and continues"
    await database_sync_to_async(tokens.revoke_token)(colleague, token.pk, now=clock.now())
    async with asyncio.timeout(60):
        assert [part async for part in heard] == []


async def test_permissions_that_are_lost_during_authentication_do_not_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is sent before the new stream is followed, and so to nobody."""
    for module, name in (
        (consumers, "PING_SECONDS"),
        (consumers, "RECHECK_SECONDS"),
        (sse, "KEEP_ALIVE_SECONDS"),
        (sse, "RECHECK_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 600.0)
    other = await known(world)
    await changes_of_power_are_heard()
    token = await database_sync_to_async(world.token)()
    caller_of = Credential.caller

    def lost_right_after(self: Credential) -> Caller | None:
        found = caller_of(self)
        ApiToken.objects.update(revoked_at=clock.now())
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Credential, "caller", lost_right_after)
        client = await Client().connect()
        await client.say(op="auth", token=token)
        assert await client.close_code() == 4401

        await database_sync_to_async(ApiToken.objects.update)(revoked_at=None)
        headers = {"authorization": f"Bearer {token}"}
        reply = await AsyncClient().get(f"/api/v1/stream?topic=run:{world.run.pk}", headers=headers)
        async with asyncio.timeout(60):
            heard = [part async for part in reply.streaming_content]
        assert len(heard) == 1 and b"event: subscribed" in heard[0]
    await other.leave()


async def test_an_expired_token_ends_the_socket_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hour is over in a moment here, and whether it is over is asked of the database then."""
    told: list[float] = []

    def in_a_moment(caller: Caller, now: datetime) -> float:
        told.append(seconds_until_expiry(caller, now))
        return 0.05

    monkeypatch.setattr(consumers, "seconds_until_expiry", in_a_moment)
    client = await Client().connect()
    text = await database_sync_to_async(world.token)()
    await database_sync_to_async(ApiToken.objects.update)(expires_at=clock.now() + timedelta(hours=1))
    await client.say(op="auth", token=text)
    await client.hear("authenticated")
    await database_sync_to_async(ApiToken.objects.update)(expires_at=clock.now())
    assert await client.close_code() == 4401
    assert 0 < told[0] < 4000


async def test_the_socket_of_somebody_else_stays(world: World) -> None:
    client = await known(world)
    colleague = await database_sync_to_async(admin_of)(world)
    made, _ = await database_sync_to_async(services.create_token)(
        user=colleague.user, project=world.project, name="t", scopes=["*"]
    )
    await database_sync_to_async(tokens.revoke_token)(colleague, made.pk, now=clock.now())
    await client.say(op="subscribe", topic=f"run:{world.run.pk}")
    await client.hear("subscribed")
    await client.leave()


def admin_of(world: World) -> Caller:
    user = User.objects.create(username="colleague")
    Membership.objects.create(user=user, project=world.project, role="admin")
    caller = selectors.caller_in(user, world.project)
    assert caller is not None
    return caller


async def test_a_malformed_message_is_answered_and_a_flood_ends_the_socket(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "MESSAGES_SECONDS", 3600.0)
    client = await known(world)
    await client.say_text("{")
    assert (await client.hear("error"))["data"]["code"] == "malformed"
    await client.say(op="dance")
    assert (await client.hear("error"))["data"]["code"] == "unknown_op"
    for _ in range(consumers.MAX_MESSAGES + 1):
        await client.say(op="pong")
    assert await client.close_code() == 4429


async def test_a_socket_that_cannot_be_written_to_is_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"run:{world.run.pk}"
    client = await known(world)
    await client.say(op="subscribe", topic=topic)
    await client.hear("subscribed")
    monkeypatch.setattr(consumers, "SLOW_SECONDS", 0.05)

    async def stuck(
        self: Any, text_data: str | None = None, bytes_data: bytes | None = None, close: bool = False
    ) -> None:
        if text_data:
            await asyncio.sleep(60)

    monkeypatch.setattr(consumers.StreamConsumer, "send", stuck)
    await apublish(topic, points(1))
    assert await client.close_code() == 4408


async def test_a_ticket_says_who_a_socket_is_of_once(world: World) -> None:
    caller = await database_sync_to_async(_caller_of)(world)
    text, _ = await database_sync_to_async(create_ticket)(caller, now=clock.now())
    first = await Client().connect()
    await first.say(op="auth", ticket=text)
    await first.hear("authenticated")
    await first.say(op="subscribe", topic="runs")
    await first.hear("subscribed")
    await first.leave()
    second = await Client().connect()
    await second.say(op="auth", ticket=text)
    assert await second.close_code() == consumers.NOT_AUTHENTICATED


def _caller_of(world: World) -> Caller:
    caller = caller_of_token(world.token(), now=clock.now())
    assert caller is not None
    return caller


@pytest.fixture
def one_stream(monkeypatch: pytest.MonkeyPatch) -> StreamLimits:
    limits = StreamLimits(per_user=1, per_address=0)
    for module in (consumers, sse):
        monkeypatch.setattr(module, "stream_limits", lambda: limits)
    return limits


async def test_a_user_with_too_many_streams_opens_no_more_until_one_ends(
    world: World, one_stream: StreamLimits
) -> None:
    token = await database_sync_to_async(world.token)("runs:read")
    first = await Client().connect()
    await first.say(op="auth", token=token)
    await first.hear("authenticated")
    second = await Client().connect()
    await second.say(op="auth", token=token)
    assert await second.close_code() == 4429
    await second.leave()
    headers = {"Authorization": f"Bearer {token}"}
    refused = await AsyncClient().get("/api/v1/stream?topic=runs&poll=1", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
    assert int(refused.headers["Retry-After"]) > 0

    await first.leave()
    answer = await AsyncClient().get("/api/v1/stream?topic=runs&poll=1", headers=headers)
    assert answer.status_code == 200
    async for _ in answer.streaming_content:  # type: ignore[attr-defined]
        assert sum(one_stream._users.values()) == 1
    assert not one_stream._users and not one_stream._unknown


async def test_an_address_with_too_many_silent_sockets_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = StreamLimits(per_user=0, per_address=0, unknown_per_address=2)
    monkeypatch.setattr(consumers, "stream_limits", lambda: limits)
    held = [await Client().connect() for _ in range(2)]
    assert await (await Client().connect()).close_code() == 4429
    await held[0].leave()
    another = await Client().connect()
    await another.leave()
    await held[1].leave()
    assert not limits._unknown
