"""Before Django reads a body: requests are charged to whoever sends them, and bodies are bounded."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio
from channels.db import database_sync_to_async
from django.core.asgi import get_asgi_application

from control_plane.accounts.identity import services as accounts
from control_plane.accounts.models import Membership, Project, Role, Team, User
from control_plane.asgi_wrapper import _authorize_upload, set_upload_tempdir, wrap_http
from control_plane.assets.storage import store, upload_services
from control_plane.assets.storage.multipart import LARGE_PART_BYTES
from control_plane.config import Quotas
from control_plane.core.api.errors import Problem
from control_plane.core.security import rate_limits
from control_plane.core.security.rate_limits import Limiter, request_cost
from control_plane.core.security.request_context import Origin
from control_plane.core.security.request_gateway import (
    ANONYMOUS_BYTES,
    PLAIN_BYTES,
    REPORT_BYTES,
    RequestGateway,
    RequestHead,
    SocketGate,
)
from control_plane.fleet.models import Node
from control_plane.fleet.services import revoke
from tests.unit.control_plane.access.doors import all_routes

QUOTAS = Quotas(address=10, node=1000, user=20)
NOBODY = Quotas(address=0, node=0, user=0)
Ask = Callable[..., Awaitable[httpx.Response]]


class Inner:
    """Stands for Django: reads the body, lets tokens in that begin with `good`, and says who they are."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.revoked = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            self.bytes_read += len(message.get("body", b""))
            more = message.get("more_body", False)
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        status = 200
        if token.startswith("good") and not self.revoked:
            kind, identity = token.split("-")[1:3]
            scope["origin"] = Origin(actor_kind=kind, actor_id=identity)
        elif token:
            status = 401
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still for a second is no Valkey that does not answer, which lets requests pass.
    And however long it stands still, the minute of a budget is not over in the middle of a test."""
    monkeypatch.setattr(rate_limits, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(rate_limits, "WINDOW_SECONDS", 3600)
    monkeypatch.setattr(rate_limits, "REMEMBERED_SECONDS", 3600)


@pytest.fixture
def inner() -> Inner:
    return Inner()


def door(inner: Inner, url: str, quotas: Quotas = QUOTAS) -> tuple[RequestGateway, Limiter]:
    async def authorize_upload(knock: RequestHead) -> Problem | None:
        known = knock.bearer.startswith("good")
        return (
            None if known else Problem(401, "not_authenticated", "log in", headers={"WWW-Authenticate": "x"})
        )

    limiter = Limiter(url, quotas)
    return RequestGateway(
        inner, limiter=limiter, authorize_upload=authorize_upload, session_cookie="s"
    ), limiter


def asker(app: Any, address: str) -> Ask:
    transport = httpx.ASGITransport(app=app, client=(address, 1))

    async def ask(
        method: str, path: str, *, token: str = "", content: Any = b"", **headers: str
    ) -> httpx.Response:
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
            url = path if path.startswith("/") else f"/api/v1/{path}"
            return await client.request(method, url, content=content, headers=headers)

    return ask


@pytest.fixture
def address() -> str:
    return secrets.token_hex(4)  # a budget that no other test has used


@pytest_asyncio.fixture
async def ask(inner: Inner, valkey_url: str, address: str) -> AsyncIterator[Ask]:
    app, limiter = door(inner, valkey_url)
    yield asker(app, address)
    await limiter.close()


async def test_an_address_gets_what_is_its_due_and_then_429(ask: Ask) -> None:
    for left in range(9, -1, -1):
        reply = await ask("GET", "me")
        assert (reply.status_code, reply.headers["RateLimit"].split(";")[1]) == (200, f"r={left}")
    assert reply.headers["RateLimit-Policy"] == '"address";q=10;w=3600'
    reply = await ask("GET", "me")
    assert (reply.status_code, reply.json()["code"]) == (429, "rate_limited")
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert 1 <= int(reply.headers["Retry-After"]) <= 3600


async def test_a_users_tokens_share_the_users_budget_whatever_the_address(
    inner: Inner, valkey_url: str, address: str
) -> None:
    """Two processes, each with its own connection, and two tokens of one user."""
    (first, one), (second, two) = door(inner, valkey_url), door(inner, valkey_url)
    user = secrets.token_hex(4)
    asks = [asker(first, address), asker(second, address + "b")]
    statuses = []
    for number in range(30):
        token = f"good-user-{user}-{number % 2}"
        statuses.append((await asks[number % 2]("GET", "me", token=token)).status_code)
    # The first request of each token is charged to its address: nobody knew yet whose it was.
    assert statuses == [200] * 22 + [429] * 8
    await one.close()
    await two.close()


async def test_a_node_has_a_budget_of_its_own(ask: Ask) -> None:
    token = f"good-node-{secrets.token_hex(4)}"
    await ask("GET", "agent/x", token=token)
    reply = await ask("POST", "agent/heartbeat", token=token)
    assert reply.headers["RateLimit-Policy"] == '"node";q=1000;w=3600'


async def test_made_up_tokens_are_charged_to_the_address(ask: Ask) -> None:
    statuses = [(await ask("GET", "me", token=f"guess-{number}")).status_code for number in range(12)]
    assert statuses == [401] * 10 + [429] * 2


async def test_a_token_that_was_revoked_is_a_strangers_again(ask: Ask, inner: Inner) -> None:
    token = f"good-user-{secrets.token_hex(4)}"
    await ask("GET", "me", token=token)
    inner.revoked = True
    budgets = [(await ask("GET", "me", token=token)).headers["RateLimit"].split(";")[0] for _ in range(2)]
    assert budgets == ['"user"', '"address"']


async def test_without_valkey_requests_pass_and_it_is_counted_and_logged(
    inner: Inner, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "AWAY_SECONDS", 3600.0)
    app, limiter = door(inner, "redis://127.0.0.1:1/0")
    ask = asker(app, "1.2.3.4")
    before = rate_limits.UNLIMITED._value.get()
    with caplog.at_level(logging.WARNING):
        replies = [await ask("GET", "me") for _ in range(15)]
    assert {reply.status_code for reply in replies} == {200}
    assert rate_limits.UNLIMITED._value.get() == before + 15
    assert caplog.text.count("Valkey does not answer") == 1, "said once, not with every request"
    await limiter.close()


@pytest.mark.parametrize(
    ("method", "path", "units"),
    [("GET", "health", 0), ("GET", "runs", 1), ("POST", "runs", 5), ("PATCH", "runs/x", 2), ("GET", "openapi.json", 20),
     ("POST", "health", 2), ("GET", "dataset-versions/dsv_1/leakage", 20), ("GET", "runs/run_1/metrics", 3),
     ("GET", "/healthz", 0), ("GET", "/readyz", 1), ("GET", "/metrics", 5),
     ("GET", "/login/abc", 5), ("HEAD", "/login/oidc/callback", 5),
     ("GET", "/", 0), ("GET", "/login", 0), ("GET", "/assets/index.js", 0), ("GET", "/static/x.css", 0),
     ("POST", "/x", 2), ("POST", "runs/run_1/sessions/ses_1/v1/chat/completions", 0),
     ("GET", "runs/run_1/logs/search", 20), ("GET", "runs/run_1/logs", 1),
     ("HEAD", "runs/run_1/logs/search", 20), ("HEAD", "health", 0), ("HEAD", "runs", 1)],
)  # fmt: skip
def test_what_costs_more_is_charged_more(method: str, path: str, units: int) -> None:
    assert request_cost(method, path if path.startswith("/") else f"/api/v1/{path}") == units


async def test_rollouts_of_agents_are_free_once_their_token_is_known(ask: Ask) -> None:
    token, path = f"good-user-{secrets.token_hex(4)}", "runs/run_1/sessions/ses_1/v1/chat/completions"
    first, *others = [await ask("POST", path, token=token) for _ in range(20)]
    assert "RateLimit" in first.headers, "a token that is not known yet is charged to its address"
    assert {reply.status_code for reply in others} == {200}
    while (await ask("GET", "me", token=token)).status_code == 200:
        pass
    assert (await ask("POST", path, token=token)).status_code == 200, "other requests' budget does not matter"
    guesses = [await ask("POST", path, token=f"guess-{number}") for number in range(20)]
    assert guesses[-1].status_code == 429


# --- WebSockets --------------------------------------------------------------------------------------------


async def shake_hands(
    url: str, address: str, *, count: int, cookie: str = "", with_answers: bool = True
) -> list[Any]:
    """What comes of handshakes: "accepted", the status of the answer, or the close code."""

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})

    limiter = Limiter(url, QUOTAS)
    gate = SocketGate(inner, limiter=limiter, session_cookie="s")
    if cookie:
        await limiter.remember(hashlib.sha256(cookie.encode()).hexdigest()[:32], "user:usr_1" + address)
    outcomes: list[Any] = []

    async def send(message: Any) -> None:
        if message["type"] == "websocket.http.response.start":
            headers = {name.decode(): value.decode() for name, value in message["headers"]}
            assert int(headers["retry-after"]) >= 1
        if message["type"] != "websocket.http.response.body":
            outcomes.append(message.get("status", message.get("code", "accepted")))

    scope = {
        "type": "websocket", "path": "/ws/v1", "client": (address, 1),
        "headers": [(b"cookie", f"s={cookie}".encode())] if cookie else [],
        "extensions": {"websocket.http.response": {}} if with_answers else {},
    }  # fmt: skip
    for _ in range(count):
        await gate(dict(scope), None, send)  # type: ignore[arg-type]
    await limiter.close()
    return outcomes


async def test_the_handshake_of_a_socket_is_charged_to_its_address(valkey_url: str, address: str) -> None:
    assert await shake_hands(valkey_url, address, count=5) == ["accepted"] * 3 + [429] * 2
    assert await shake_hands(valkey_url, address, count=1, with_answers=False) == [4429]
    assert await shake_hands(valkey_url, address + "b", count=1) == ["accepted"]


async def test_the_handshake_of_a_known_browser_is_charged_to_its_user(valkey_url: str, address: str) -> None:
    outcomes = await shake_hands(valkey_url, address, count=8, cookie="c" + address)
    assert outcomes == ["accepted"] * 6 + [429] * 2


# --- bodies -----------------------------------------------------------------------------------------------


async def chunks(count: int, size: int = 65536) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * size


async def test_a_body_that_announces_too_much_is_refused_unread(ask: Ask, inner: Inner) -> None:
    length = {"Content-Length": str(PLAIN_BYTES + 1)}
    reply = await ask("POST", "runs", token="good-user-1", content=b"x", **length)
    assert (reply.status_code, reply.json()["code"], inner.bytes_read) == (413, "too_large", 0)
    assert reply.headers["Connection"] == "close"


async def test_a_body_that_does_not_say_its_size_is_counted(ask: Ask, inner: Inner) -> None:
    reply = await ask("POST", "runs", token="good-user-2", content=chunks(200))
    assert (reply.status_code, reply.json()["code"]) == (413, "too_large")
    assert inner.bytes_read <= PLAIN_BYTES


async def test_who_does_not_say_who_he_is_sends_little(ask: Ask) -> None:
    assert (await ask("POST", "agent/enroll", content=b"x" * 65536)).status_code == 200
    assert (await ask("POST", "agent/enroll", content=b"x" * 65537)).status_code == 413
    assert (await ask("POST", "agent/enroll", content=chunks(2))).status_code == 413


@pytest.mark.parametrize("path", ["uploads", "upload-sessions/ups_1/parts/0", "agent/uploads/u/parts/0"])
async def test_a_file_is_not_read_before_its_sender_is_known(ask: Ask, inner: Inner, path: str) -> None:
    for token in ("", "guess"):
        reply = await ask("PUT", path, token=token, content=chunks(3))
        assert (reply.status_code, reply.json()["code"], inner.bytes_read) == (401, "not_authenticated", 0)
    reply = await ask("PUT", path, token="good-user-3", content=chunks(3))
    assert (reply.status_code, inner.bytes_read) == (200, 3 * 65536)


async def test_a_part_has_a_limit_of_its_own(ask: Ask, inner: Inner) -> None:
    length = {"Content-Length": str(34 * 1024**2)}
    reply = await ask("PUT", "upload-sessions/ups_1/parts/0", token="good-user-4", content=b"x", **length)
    assert (reply.status_code, inner.bytes_read) == (413, 0)


async def test_files_and_pages_of_the_dashboard_are_not_charged(ask: Ask) -> None:
    for path in ("/runs", "/assets/index.js", "/static/x.css", "/healthz") * 5:
        reply = await ask("GET", path)
        assert (reply.status_code, "RateLimit" in reply.headers) == (200, False)


async def test_a_sign_in_is_charged_to_the_address_whoever_says_he_is(ask: Ask) -> None:
    token = f"good-user-{secrets.token_hex(4)}"
    await ask("GET", "agent/x", token=token)  # charged to the address, for it is not known yet
    assert [(await ask("GET", "/login/oidc", token=token)).status_code for _ in range(2)] == [200, 429]
    assert (await ask("GET", "/readyz")).status_code == 200, (
        "a probe does not fail for the others of its address"
    )


async def test_a_scrape_is_charged_on_its_own(ask: Ask) -> None:
    """Each counts in the database, and each may be a guess at the token."""
    for _ in range(11):
        await ask("GET", "me")
    answers = [await ask("GET", "/metrics") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert (await ask("GET", "/readyz")).status_code == 200


@pytest.mark.parametrize(
    "path", ["/x", "/", "/login/abc", "/login/oidc", "/healthz", "/static/x.css", "/metrics"]
)
async def test_outside_the_api_a_body_is_small_whoever_sends_it(
    inner: Inner, valkey_url: str, address: str, path: str
) -> None:
    app, limiter = door(inner, valkey_url, NOBODY)
    ask = asker(app, address)
    for token in ("", "good-user-9"):
        length = {"Content-Length": str(ANONYMOUS_BYTES + 1)}
        assert (await ask("POST", path, token=token, content=b"x", **length)).status_code == 413
        assert inner.bytes_read == 0
        assert (await ask("POST", path, token=token, content=chunks(2))).status_code == 413
        assert inner.bytes_read <= ANONYMOUS_BYTES
        inner.bytes_read = 0
    await limiter.close()


async def test_quotas_of_zero_are_no_limits(inner: Inner, valkey_url: str, address: str) -> None:
    app, limiter = door(inner, valkey_url, NOBODY)
    replies = [await asker(app, address)("GET", "me") for _ in range(15)]
    assert {reply.status_code for reply in replies} == {200}
    assert "RateLimit" not in replies[0].headers
    await limiter.close()


async def test_the_service_learns_from_its_own_authentication(
    transactional_db: None, valkey_url: str, address: str
) -> None:
    """Django itself behind the door: the second request of a token is charged to its user."""
    user, token = await database_sync_to_async(_somebody)()
    ask = asker(wrap_http(get_asgi_application()), address)
    replies = [await ask("GET", "me", token=token) for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 200]
    assert [reply.headers["RateLimit"].split(";")[0] for reply in replies] == ['"address"', '"user"']
    assert replies[1].json()["user"]["username"] == user
    assert (await ask("POST", "uploads?purpose=dataset&filename=f", content=b"x")).status_code == 401
    reply = await ask("POST", "uploads?purpose=dataset&filename=f", token=token, content=chunks(3))
    assert (reply.status_code, reply.json()["bytes"]) == (201, 3 * 65536)


def _somebody() -> tuple[str, str]:
    user = User.objects.create(username="dora")
    project = Project.objects.create(team=Team.objects.create(name="red"), name="default")
    Membership.objects.create(user=user, project=project, role=Role.ADMIN)
    return user.username, accounts.create_token(user=user, project=project, name="t", scopes=["*"])[1]


# --- who is known -----------------------------------------------------------------------------------------


def knock(path: str, *, bearer: str = "", session: str = "", project: str = "") -> RequestHead:
    return RequestHead(
        method="PUT", path=f"/api/v1/{path}", address="", bearer=bearer, session=session, project=project,
        announced_bytes=None,
    )  # fmt: skip


def answer(*words: str, **named: str) -> int:
    """200: the file may come."""
    problem = _authorize_upload(knock(*words, **named))
    return problem.status if problem else 200


def test_the_real_look_up_knows_tokens_sessions_and_nodes(alice: Any, node: Any, clock: Any) -> None:
    machine = node()
    credential = machine.credential
    assert answer("uploads", bearer=alice.token) == 200
    assert answer("agent/uploads/u/parts/0", bearer=credential) == 200
    assert answer("agent/uploads/u/parts/0", bearer=alice.token) == 401
    assert answer("uploads", bearer=credential) == 401
    assert answer("uploads", bearer="ool_guess") == 401
    revoke(Node.objects.get(pk=machine.node_id), now=clock.now)
    problem = _authorize_upload(knock("agent/uploads/u/parts/0", bearer=credential))
    assert problem is not None and (problem.status, problem.code) == (403, "node_revoked")
    assert answer("uploads", session="guess") == 401
    assert answer("uploads", session=session_of(alice, clock)) == 200


def session_of(person: Any, clock: Any) -> str:
    person.client.get(accounts.create_login_link(person.user, now=clock.now))
    [session] = [cookie.value for name, cookie in person.client.cookies.items() if "session" in name]
    return str(session)


def test_a_file_is_taken_from_who_may_write_what_it_is_for(alice: Any, person: Any, clock: Any) -> None:
    for scopes, status in (
        (["runs:write", "datasets:read"], 403),
        (["datasets:write"], 200),
        (["models:*"], 200),
    ):
        _, text = accounts.create_token(user=alice.user, project=alice.project, name="t", scopes=scopes)
        for path in ("uploads", "upload-sessions/ups_1/parts/0"):
            assert answer(path, bearer=text) == status, (scopes, path)
    viewer = person("bob", role=Role.VIEWER)
    assert answer("uploads", bearer=viewer.token) == 403
    second = Project.objects.create(team=alice.project.team, name="second")
    Membership.objects.create(user=viewer.user, project=second, role=Role.EDITOR)
    session = session_of(viewer, clock)
    assert answer("uploads", session=session) == 403
    assert answer("uploads", session=session, project=second.pk) == 200, "the project that the request names"
    assert answer("uploads", session=session, project="prj_none") == 404


async def test_bodies_wait_on_the_disk_of_the_store(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    set_upload_tempdir()
    pieces = iter([b"x" * settings.FILE_UPLOAD_MAX_MEMORY_SIZE, b"x"])

    async def receive() -> dict[str, Any]:
        piece = next(pieces)
        return {"type": "http.request", "body": piece, "more_body": len(piece) > 1}

    with await get_asgi_application().read_body(receive) as body:
        assert os.readlink(f"/proc/self/fd/{body.fileno()}").startswith(str(store.scratch_folder()))


def test_every_route_of_parts_takes_the_largest_part() -> None:
    routes = [route for route in all_routes() if "/parts/" in route.url]
    assert len(routes) >= 3
    for route in routes:
        path = route.path({}).removeprefix("/api/v1/")
        assert knock(path, bearer="x").max_body_bytes > LARGE_PART_BYTES, route.name


def test_what_a_node_found_in_a_model_may_be_larger_than_plain_json() -> None:
    [route] = [
        route for route in all_routes() if route.url.endswith("/complete") and "model-checks" in route.url
    ]
    path = route.path({}).removeprefix("/api/v1/")
    assert knock(path, bearer="x").max_body_bytes == REPORT_BYTES > PLAIN_BYTES


def test_a_project_has_so_many_unfinished_uploads(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_services, "MOST_OPEN_SESSIONS", 2)
    wanted = {"filename": "f", "purpose": "dataset", "bytes": 9}
    begun = [alice.post("/upload-sessions", wanted) for _ in range(3)]
    assert [reply.status_code for reply in begun] == [201, 201, 409]
    assert json.loads(begun[2].content)["code"] == "too_many"
    alice.call("DELETE", f"/upload-sessions/{begun[0].json()['id']}")
    assert alice.post("/upload-sessions", wanted).status_code == 201
