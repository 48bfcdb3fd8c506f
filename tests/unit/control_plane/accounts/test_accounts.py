"""Tokens, sessions, login links, and the commands that make them."""

from __future__ import annotations

import hashlib
import io
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from control_plane.accounts.identity import services
from control_plane.accounts.models import (
    ApiToken,
    AuditEntry,
    LoginFailure,
    LoginLink,
    Membership,
    Role,
    TeamMembership,
    User,
)
from control_plane.core.infra.clock import rfc3339
from control_plane.core.security.forwarded import network_of
from control_plane.fleet.models import JoinToken, Pool


@pytest.fixture(autouse=True)
def _quick_hashing(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def run_command(name: str, *arguments: str) -> str:
    out = io.StringIO()
    call_command(name, *arguments, stdout=out)
    return out.getvalue().strip()


def test_token_is_shown_once_and_stored_as_its_sha256(alice: Any) -> None:
    made = alice.post("/tokens", {"name": "ci", "scopes": ["runs:*"]}).json()
    assert re.fullmatch(r"ool_[A-Za-z0-9_-]{43}", made["token"])
    row = ApiToken.objects.get(pk=made["id"])
    assert row.sha256 == hashlib.sha256(made["token"].encode()).hexdigest()
    assert made["token"] not in str(vars(row))
    listed = alice.get("/tokens").json()["data"]
    assert all("token" not in item for item in listed)


def test_a_token_works_until_it_expires_or_is_revoked(alice: Any, clock: Any) -> None:
    expires = clock.now + timedelta(hours=1)
    made = alice.post("/tokens", {"name": "ci", "scopes": ["*"], "expires_at": expires.isoformat()}).json()
    short = Client(headers={"authorization": f"Bearer {made['token']}"})
    assert short.get("/api/v1/me").status_code == 200
    assert ApiToken.objects.get(pk=made["id"]).last_used_at == clock.now
    clock.forward(3601)
    assert short.get("/api/v1/me").status_code == 401
    clock.forward(-3601)
    assert alice.call("DELETE", f"/tokens/{made['id']}").status_code == 204
    assert short.get("/api/v1/me").status_code == 401
    assert alice.call("DELETE", f"/tokens/{made['id']}").status_code == 404


def test_a_token_cannot_make_a_stronger_one(alice: Any) -> None:
    _, alice.token = services.create_token(
        user=alice.user, project=alice.project, name="maker", scopes=["tokens:write", "runs:read"]
    )
    assert alice.post("/tokens", {"name": "same", "scopes": ["runs:read"]}).status_code == 201
    for scopes in (["*"], ["runs:*"], ["pool:admin"]):
        refused = alice.post("/tokens", {"name": "more", "scopes": scopes})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_exceeds_caller")
    unknown = alice.post("/tokens", {"name": "odd", "scopes": ["runs:fly"]})
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/scopes")


def test_a_login_link_works_once_and_only_for_a_while(db: None, clock: Any) -> None:
    run_command("init_embedded")
    link = run_command("login_link")
    browser = Client()
    reply = browser.get(link)
    assert (reply.status_code, reply.headers["Location"]) == (302, "/")
    me = browser.get("/api/v1/me").json()
    assert (me["user"]["username"], me["login"]) == (
        "admin", {"how": "login link", "at": rfc3339(clock.now)},
    )  # fmt: skip
    assert Client().get(link).status_code == 410
    late = run_command("login_link")
    clock.forward(15 * 60 + 1)
    assert Client().get(late).status_code == 410
    assert Client().get("/login/guess").status_code == 410
    assert not LoginLink.objects.filter(sha256__contains=link.removeprefix("/login/")).exists()


def browser_of(user: User, password: str = "correct horse") -> tuple[Client, str]:
    user.set_password(password)
    user.save()
    browser = Client(enforce_csrf_checks=True)
    return browser, browser.get("/api/v1/session/csrf").json()["csrf_token"]


def log_in(browser: Client, csrf: str, username: str, password: str) -> Any:
    return browser.post(
        "/api/v1/session", {"username": username, "password": password}, content_type="application/json",
        headers={"x-csrftoken": csrf},
    )  # fmt: skip


def test_a_session_needs_the_password_and_every_change_a_csrf_token(alice: Any) -> None:
    browser, csrf = browser_of(alice.user)
    assert log_in(browser, "", "alice", "correct horse").status_code == 403
    assert log_in(browser, csrf, "alice", "wrong").status_code == 401
    logged_in = log_in(browser, csrf, "alice", "correct horse")
    assert logged_in.json()["user"]["username"] == "alice"
    assert logged_in.json()["login"]["how"] == "password"
    assert alice.get("/me").json()["login"] is None, "a token has no login"
    csrf = browser.get("/api/v1/session/csrf").json()["csrf_token"]
    body = {"spec": alice.spec()}
    assert browser.post("/api/v1/runs", body, content_type="application/json").status_code == 403
    made = browser.post("/api/v1/runs", body, content_type="application/json", headers={"x-csrftoken": csrf})
    assert made.status_code == 201
    assert browser.delete("/api/v1/session", headers={"x-csrftoken": csrf}).status_code == 204
    assert browser.get("/api/v1/me").status_code == 401


def test_a_browser_uploads_raw_bytes_under_its_session(alice: Any) -> None:
    browser, csrf = browser_of(alice.user)
    log_in(browser, csrf, "alice", "correct horse")
    csrf = browser.get("/api/v1/session/csrf").json()["csrf_token"]
    address, row = "/api/v1/uploads?filename=d.jsonl&purpose=dataset", b'{"q": "1", "a": "1"}\n'
    assert browser.post(address, row, content_type="application/octet-stream").status_code == 403
    sent = browser.post(address, row, content_type="application/octet-stream", headers={"x-csrftoken": csrf})
    assert (sent.status_code, sent.json()["bytes"]) == (201, len(row))


def test_too_many_wrong_passwords_are_refused_before_hashing(alice: Any, clock: Any) -> None:
    browser, csrf = browser_of(alice.user)
    for _ in range(services.THROTTLE_FAILURES):
        assert log_in(browser, csrf, "alice", "x").status_code == 401
    refused = log_in(browser, csrf, "alice", "correct horse")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "300")
    clock.forward(301)
    assert log_in(browser, csrf, "alice", "correct horse").status_code == 200


def failures(clock: Any, count: int, *, username: str = "alice", address: str = "") -> None:
    """Failed logins from as many addresses, or all from one."""
    LoginFailure.objects.bulk_create(
        LoginFailure(username=username, address=address or f"192.0.{n // 250}.{n % 250}", at=clock.now)
        for n in range(count)
    )


def test_no_number_of_failures_elsewhere_locks_an_account(alice: Any, clock: Any) -> None:
    """Neither at an address of the user nor at one that was never seen."""
    failures(clock, 5000)
    browser, csrf = browser_of(alice.user)
    assert log_in(browser, csrf, "alice", "a typing error").status_code == 401
    assert log_in(browser, csrf, "alice", "correct horse").status_code == 200


def test_an_address_that_is_new_to_a_guessed_account_gets_fewer_tries(alice: Any, clock: Any) -> None:
    failures(clock, services.THROTTLE_FAILURES_OF_A_NAME)
    browser, csrf = browser_of(alice.user)
    for _ in range(services.THROTTLE_FAILURES_WHILE_GUESSED):
        assert log_in(browser, csrf, "alice", "guess").status_code == 401
    assert log_in(browser, csrf, "alice", "correct horse").status_code == 429
    clock.forward(301)
    assert log_in(browser, csrf, "alice", "correct horse").status_code == 200

    # From here on the address is the user's own, and keeps its whole allowance.
    failures(clock, services.THROTTLE_FAILURES_OF_A_NAME)
    other, csrf = browser_of(alice.user)
    for _ in range(services.THROTTLE_FAILURES - 1):
        assert log_in(other, csrf, "alice", "a typing error").status_code == 401
    assert log_in(other, csrf, "alice", "correct horse").status_code == 200


def test_an_address_cannot_try_ever_more_names(alice: Any, clock: Any) -> None:
    browser, csrf = browser_of(alice.user)
    for n in range(services.THROTTLE_FAILURES_OF_AN_ADDRESS // 5):
        failures(clock, 5, username=f"user{n}", address="127.0.0.1")
    assert log_in(browser, csrf, "alice", "correct horse").status_code == 429


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("198.51.100.7", "198.51.100.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:198.51.100.7", "198.51.100.7"),
        ("", ""),
    ],
)
def test_limits_count_by_address_and_by_the_network_of_an_ipv6_client(address: str, counted: str) -> None:
    assert network_of(address) == counted


def test_nobody_has_a_default_password(db: None) -> None:
    run_command("init_embedded")
    admin = User.objects.get(username="admin")
    assert not admin.has_usable_password()
    browser = Client()
    for guess in ("", "admin", "oolong"):
        reply = browser.post(
            "/api/v1/session", {"username": "admin", "password": guess}, content_type="application/json"
        )
        assert reply.status_code in (401, 422)


def test_the_embedded_start_is_safe_to_repeat(db: None) -> None:
    for _ in range(2):
        run_command("init_embedded")
    assert (
        User.objects.count(),
        Membership.objects.count(),
        Pool.objects.filter(all_teams=True).count(),
    ) == (1, 1, 1)


def test_create_token_prints_a_token_that_works(db: None) -> None:
    run_command("init_embedded")
    token = run_command("create_token", "--name", "ci", "--scopes", "runs:read,pool:read")
    reply = Client(headers={"authorization": f"Bearer {token}"}).get("/api/v1/me").json()
    assert reply["scopes"] == ["pool:read", "runs:read"]
    with pytest.raises(CommandError, match="runs:fly"):
        run_command("create_token", "--name", "ci", "--scopes", "runs:fly")
    with pytest.raises(CommandError, match="nobody"):
        run_command("create_token", "--name", "ci", "--user", "nobody")


def test_join_token_prints_a_token_for_one_node(db: None) -> None:
    token = run_command("join_token")
    assert JoinToken.objects.get().sha256 == hashlib.sha256(token.encode()).hexdigest()


@pytest.fixture
def second(alice: Any) -> Any:
    """Another project of Alice's team, which she administers."""
    TeamMembership.objects.create(user=alice.user, team=alice.project.team, role=Role.ADMIN)
    made = alice.post("/projects", {"name": "second"})
    assert made.status_code == 201, made.json()
    return made.json()


def test_a_token_of_a_team_admin_makes_lists_and_ends_tokens_of_another_project(
    alice: Any, second: Any
) -> None:
    there = f"?project={second['id']}"
    made = alice.post(f"/tokens{there}", {"name": "ci", "scopes": ["runs:read"]})
    assert made.status_code == 201, made.json()
    token = made.json()
    other = Client(headers={"authorization": f"Bearer {token['token']}"})
    me = other.get("/api/v1/me").json()
    assert (me["project"]["name"], me["scopes"]) == ("second", ["runs:read"])
    assert token["id"] in [one["id"] for one in alice.get(f"/tokens{there}").json()["data"]]
    assert token["id"] not in [one["id"] for one in alice.get("/tokens").json()["data"]]
    entry = AuditEntry.objects.get(action="token.create", target_id=token["id"])
    assert (entry.project, entry.actor_id) == (second["id"], alice.user.pk)
    assert alice.post(f"/tokens/{token['id']}/rotate").status_code == 404
    turned = alice.post(f"/tokens/{token['id']}/rotate{there}")
    assert turned.status_code == 200 and turned.json()["token"] != token["token"]
    assert alice.call("DELETE", f"/tokens/{token['id']}").status_code == 404
    assert alice.call("DELETE", f"/tokens/{token['id']}{there}").status_code == 204
    assert other.get("/api/v1/me").status_code == 401
    assert AuditEntry.objects.get(action="token.revoke", target_id=token["id"]).project == second["id"]


def test_a_token_for_another_project_is_no_stronger_and_lasts_no_longer_than_its_maker(
    alice: Any, second: Any, clock: Any
) -> None:
    row, alice.token = services.create_token(
        user=alice.user, project=alice.project, name="maker", scopes=["tokens:write", "team:admin", "runs:read"],
        expires_at=clock.now + timedelta(days=1),
    )  # fmt: skip
    path = f"/tokens?project={second['id']}"
    made = alice.post(path, {"name": "same", "scopes": ["runs:read"], "expires_at": None}).json()
    assert ApiToken.objects.get(pk=made["id"]).expires_at == row.expires_at
    refused = alice.post(path, {"name": "more", "scopes": ["runs:write"]})
    assert (refused.status_code, refused.json()["code"]) == (403, "scope_exceeds_caller")


def test_a_token_without_team_admin_stays_in_its_project(alice: Any, second: Any) -> None:
    """Also where its user has a role in both: a leaked token of one project must not reach another."""
    _, alice.token = services.create_token(
        user=alice.user,
        project=alice.project,
        name="editor",
        scopes=["tokens:write", "tokens:read", "runs:*"],
    )
    for reply in (
        alice.post(f"/tokens?project={second['id']}", {"name": "x", "scopes": ["runs:read"]}),
        alice.get(f"/tokens?project={second['id']}"),
    ):
        assert (reply.status_code, reply.json()["code"]) == (403, "missing_scope")
        assert "team:admin" in reply.json()["detail"]


def test_a_project_of_another_team_does_not_exist_for_a_team_admin(
    alice: Any, person: Any, second: Any
) -> None:
    """Not even where the same user has a role in it: the token's power ends at its team."""
    charlie = person("charlie", team="blue")
    Membership.objects.create(user=alice.user, project=charlie.project, role=Role.ADMIN)
    for project in (charlie.project.pk, "prj_none"):
        refused = alice.post(f"/tokens?project={project}", {"name": "x", "scopes": ["runs:read"]})
        assert refused.status_code == 404, refused.json()


def test_the_command_makes_lists_and_ends_a_token_of_another_project(oolong: Any, second: Any) -> None:
    made = oolong("token", "create", "--name", "ci", "--scope", "runs:read", "--project", "second", "--json")
    assert made.code == 0, made.err
    token = json.loads(made.out)
    assert ApiToken.objects.get(pk=token["id"]).project_id == second["id"]
    assert token["id"] in oolong("token", "list", "--project", "second").out
    assert token["id"] not in oolong("token", "list").out
    turned = json.loads(oolong("token", "rotate", token["id"], "--project", "second", "--json").out)
    assert turned["id"] == token["id"] and turned["token"] != token["token"]
    assert oolong("token", "revoke", token["id"], "--project", "second").code == 0
    assert token["id"] not in oolong("token", "list", "--project", "second").out
    unknown = oolong("token", "list", "--project", "thrid")
    assert unknown.code == 2 and "--project thrid: you have a role in" in unknown.err
    assert "second" in unknown.err
