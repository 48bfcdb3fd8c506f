"""A page of the dashboard uses a playground with its session; everything else of the tunnel needs a token."""

from __future__ import annotations

import httpx
from aiohttp import web
from channels.db import database_sync_to_async
from django.conf import settings
from django.test import Client

from control_plane.accounts.models import Membership, Role
from tests.unit.control_plane.tunnel.conftest import Site


async def answer(request: web.Request) -> web.Response:
    return web.json_response({"method": request.method, "cookie": request.headers.get("Cookie", "")})


@database_sync_to_async
def session_cookie(site: Site) -> str:
    browser = Client()
    browser.force_login(site.world.user, backend="django.contrib.auth.backends.ModelBackend")
    return f"{settings.SESSION_COOKIE_NAME}={browser.cookies[settings.SESSION_COOKIE_NAME].value}"


async def signed_in(site: Site) -> tuple[httpx.AsyncClient, dict[str, str]]:
    """A browser with a session, and the headers that the pages of the dashboard add."""
    client = await site._stack.enter_async_context(site.bare_client())
    name, _, value = (await session_cookie(site)).partition("=")
    client.cookies.set(name, value)
    token = (await client.get("/session/csrf")).json()["csrf_token"]
    return client, {"X-CSRFToken": token}


async def test_a_session_chats_with_its_csrf_token_and_the_job_never_sees_the_cookie(site: Site) -> None:
    job = await site.job(answer)
    await site.node(job, endpoint="playground")
    client, headers = await signed_in(site)
    path = f"/runs/{site.world.run.pk}/playground"
    for method, rest in (("POST", "/chat/completions"), ("GET", "")):
        reply = await client.request(method, f"{path}{rest}", headers=headers)
        assert (reply.status_code, reply.json()) == (200, {"method": method, "cookie": ""})


async def test_a_session_without_the_csrf_token_reaches_no_job(site: Site) -> None:
    job = await site.job(answer)
    await site.node(job, endpoint="playground")
    client, headers = await signed_in(site)
    path = f"/runs/{site.world.run.pk}/playground"
    tries = [("POST", {}), ("GET", {}), ("POST", {"X-CSRFToken": "x" * 64})]
    for method, wrong in tries:
        reply = await client.request(method, path, headers=wrong)
        assert (reply.status_code, reply.json()["code"]) == (403, "csrf"), (method, wrong)
    foreign = {**headers, "Origin": "https://elsewhere.example"}
    assert (await client.post(path, headers=foreign)).status_code == 403
    assert job.requests == []


async def test_a_session_has_the_permissions_of_its_user_and_opens_no_agent_session(site: Site) -> None:
    job = await site.job(answer)
    await site.node(job, endpoint="playground")
    client, headers = await signed_in(site)
    reply = await client.post(site.path(), headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (401, "not_authenticated")
    await Membership.objects.filter(user=site.world.user).aupdate(role=Role.VIEWER)
    reply = await client.post(f"/runs/{site.world.run.pk}/playground/score", headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (403, "missing_scope")
    assert job.requests == []
