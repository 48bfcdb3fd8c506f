"""Teams, projects, members, invitations, service accounts, and the tokens of all of them."""

from __future__ import annotations

import io
import json
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
    Invitation,
    Membership,
    Project,
    Role,
    TeamMembership,
    User,
)
from control_plane.accounts.tokens.scopes import ROLE_SCOPES
from control_plane.core.infra.clock import rfc3339


@pytest.fixture(autouse=True)
def _quick_hashing(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def head(alice: Any) -> Any:
    """Alice as admin of her team and of the installation."""
    TeamMembership.objects.create(user=alice.user, team=alice.project.team, role=Role.ADMIN)
    User.objects.filter(pk=alice.user.pk).update(is_staff=True)
    return alice


def code(reply: Any) -> tuple[int, str]:
    return reply.status_code, reply.json()["code"]


def as_token(text: str) -> Any:
    """What a bearer of this text may call."""
    client = Client(headers={"authorization": f"Bearer {text}"})

    def call(method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = json.dumps(body) if body is not None else ""
        return client.generic(
            method, f"/api/v1{path}", data=data, content_type="application/json", headers=headers
        )

    return call


def browser(user: User) -> Any:
    client = Client()
    client.force_login(user)
    return client


# --- teams and projects


def test_the_installations_admin_makes_a_team_and_is_its_admin(head: Any) -> None:
    made = head.post("/teams", {"name": "green"})
    assert made.status_code == 201
    assert code(head.post("/teams", {"name": "green"})) == (409, "name_taken")
    refused = head.post("/teams", {"name": "/etc"})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/name")
    assert [team["name"] for team in head.get("/teams").json()["data"]].count("green") == 1
    mine = browser(head.user).get("/api/v1/projects").json()["data"]
    assert {(item["team"]["name"], item["name"]) for item in mine} == {
        ("red", "default"),
        ("green", "default"),
    }


def test_a_teams_admin_makes_and_renames_projects_and_nobody_else_does(head: Any, person: Any) -> None:
    made = head.post("/projects", {"name": "second"})
    assert made.status_code == 201 and made.json()["team"]["name"] == "red"
    assert code(head.post("/projects", {"name": "second"})) == (409, "name_taken")
    assert head.call("PATCH", "/project", {"name": "first"}).json()["name"] == "first"
    assert code(head.call("PATCH", "/project", {"name": "second"})) == (409, "name_taken")
    assert head.call("PATCH", "/team", {"name": "crimson"}).json()["name"] == "crimson"
    bob = person("bob", team="crimson", project="first")
    assert code(bob.post("/projects", {"name": "third"})) == (403, "missing_scope")
    assert code(bob.call("PATCH", "/team", {"name": "bobs"})) == (403, "missing_scope")


def test_a_browser_chooses_its_project_and_a_token_stays_in_its_own(head: Any, person: Any) -> None:
    second = head.post("/projects", {"name": "second"}).json()["id"]
    page = browser(head.user)

    def project_of(**headers: str) -> str:
        return str(page.get("/api/v1/me", headers=headers).json()["project"]["name"])

    assert project_of() == "default"
    assert project_of(**{"X-Oolong-Project": second}) == "second"
    assert project_of() == "default", "the header is for one request"
    chosen = page.put("/api/v1/session/project", {"project": second}, content_type="application/json")
    assert chosen.json()["project"]["name"] == project_of() == "second"
    foreign = person("charlie", team="blue").project.pk
    assert page.get("/api/v1/me", headers={"X-Oolong-Project": foreign}).status_code == 404
    refused = page.put("/api/v1/session/project", {"project": foreign}, content_type="application/json")
    assert refused.status_code == 404
    assert code(head.get("/me", **{"X-Oolong-Project": second})) == (403, "token_bound")
    assert head.get("/me", **{"X-Oolong-Project": head.project.pk}).status_code == 200
    assert code(head.call("PUT", "/session/project", {"project": second})) == (403, "token_bound")

    Project.objects.filter(pk=second).delete()
    assert project_of() == "default", "what the session remembers is gone"


# --- members


def test_a_role_in_the_team_is_a_floor_in_all_its_projects(head: Any, person: Any) -> None:
    bob = person("bob", role=Role.VIEWER)
    assert bob.get("/me").json()["role"] == "viewer"
    added = head.post("/team/members", {"username": "bob", "role": "operator"}).json()
    assert (added["role"], added["project_role"], added["team_role"]) == ("operator", "viewer", "operator")
    assert bob.get("/me").json()["role"] == "operator"
    second = head.post("/projects", {"name": "second"}).json()["id"]
    seen = browser(bob.user).get("/api/v1/me", headers={"X-Oolong-Project": second}).json()
    assert (seen["project"]["name"], seen["role"]) == ("second", "operator")


def test_a_list_of_projects_has_the_higher_of_both_roles(head: Any, person: Any) -> None:
    head.post("/projects", {"name": "second"})
    bob = person("bob", role="viewer", team="red")
    head.post("/team/members", {"username": "bob", "role": "editor"})
    listed = browser(bob.user).get("/api/v1/projects").json()["data"]
    assert {item["name"]: item["role"] for item in listed} == {"default": "editor", "second": "editor"}
    head.call("PATCH", f"/members/{bob.user.pk}", {"role": "operator"})
    listed = browser(bob.user).get("/api/v1/projects").json()["data"]
    assert {item["name"]: item["role"] for item in listed} == {"default": "operator", "second": "editor"}


def test_members_are_added_changed_and_removed_by_admins_alone(head: Any, person: Any) -> None:
    bob, dave = person("bob", role=Role.OPERATOR), person("dave", project="elsewhere")
    assert code(bob.post("/members", {"username": "dave", "role": "viewer"})) == (403, "missing_scope")
    assert head.post("/members", {"username": "dave", "role": "viewer"}).json()["role"] == "viewer"
    assert code(head.post("/members", {"username": "dave", "role": "admin"})) == (409, "already_member")
    assert head.call("PATCH", f"/members/{dave.user.pk}", {"role": "editor"}).json()["role"] == "editor"
    bad = head.call("PATCH", f"/members/{dave.user.pk}", {"role": "member"})
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/role")
    assert code(bob.call("DELETE", f"/members/{dave.user.pk}")) == (403, "missing_scope")
    assert head.call("DELETE", f"/members/{dave.user.pk}").status_code == 204
    assert head.call("DELETE", f"/members/{dave.user.pk}").status_code == 404
    written = AuditEntry.objects.filter(action="project.member").order_by("pk")
    assert [(entry.data["before"], entry.data["after"]) for entry in written] == [
        (None, "viewer"), ("viewer", "editor"), ("editor", None),
    ]  # fmt: skip
    assert {entry.actor_name for entry in written} == {"alice"}


def test_strangers_are_invited_not_added(alice: Any, person: Any) -> None:
    person("charlie", team="blue")
    for stranger in ("charlie", "nobody"):
        refused = alice.post("/members", {"username": stranger, "role": "viewer"})
        assert code(refused) == (422, "unknown_user") and "invitation" in refused.json()["detail"]


def test_a_project_and_a_team_keep_an_admin(head: Any, person: Any) -> None:
    me = head.user.pk
    assert head.call("DELETE", f"/members/{me}").status_code == 204, "still admin by the team"
    for refused in (
        head.call("DELETE", f"/team/members/{me}"), head.call("PATCH", f"/team/members/{me}", {"role": "viewer"}),
    ):  # fmt: skip
        assert code(refused) == (409, "last_admin")
    assert TeamMembership.objects.get(user=head.user).role == "admin", "nothing half-done stays"
    person("bob", role=Role.VIEWER)
    assert head.post("/team/members", {"username": "bob", "role": "admin"}).status_code == 201
    assert head.call("DELETE", f"/team/members/{me}").status_code == 204
    assert head.get("/me").status_code == 401


def test_a_lone_admin_of_a_project_cannot_leave(alice: Any, person: Any) -> None:
    person("bob", role=Role.EDITOR)
    assert code(alice.call("DELETE", f"/members/{alice.user.pk}")) == (409, "last_admin")
    assert code(alice.call("PATCH", f"/members/{alice.user.pk}", {"role": "editor"})) == (409, "last_admin")


def test_whoever_leaves_loses_the_tokens_for_good(alice: Any, person: Any) -> None:
    bob = person("bob", role=Role.EDITOR)
    assert bob.call("DELETE", f"/members/{bob.user.pk}").status_code == 204
    assert bob.get("/runs").status_code == 401
    Membership.objects.create(user=bob.user, project=alice.project, role=Role.EDITOR)
    assert bob.get("/runs").status_code == 401, "coming back does not bring an old token to life"


# --- invitations


def invite(person: Any, **asked: Any) -> tuple[str, str]:
    """Id and secret."""
    made = person.post("/invitations", {"role": "editor", **asked}).json()
    return made["id"], made["link"].partition("/invite#")[2]


def accept(secret: str, **asked: Any) -> Any:
    return Client().post(
        "/api/v1/invitations/accept", {"secret": secret, **asked}, content_type="application/json"
    )


NEW = {"username": "erin", "password": "correct horse"}


def test_a_new_user_joins_by_an_invitation_once(alice: Any) -> None:
    identity, secret = invite(alice, note="Erin")
    shown = Client().post("/api/v1/invitations/lookup", {"secret": secret}, content_type="application/json")
    assert (shown.json()["role"], shown.json()["invited_by"]) == ("editor", "alice")
    assert not Invitation.objects.filter(sha256=secret).exists(), "only its hash is kept"
    short = accept(secret, username="erin", password="short")
    assert (short.status_code, short.json()["errors"][0]["pointer"]) == (422, "/password")
    assert accept(secret).json()["errors"][0]["pointer"] == "/username"
    joined = accept(secret, **NEW, token_name="laptop").json()
    assert (joined["username"], joined["project"]["id"]) == ("erin", alice.project.pk)
    me = as_token(joined["token"])("GET", "/me").json()
    assert (me["user"]["username"], me["role"]) == ("erin", "editor")
    assert code(accept(secret, username="eve", password="correct horse")) == (410, "invitation_invalid")
    assert not User.objects.filter(username="eve").exists()
    listed = alice.get("/invitations").json()["data"]
    assert [(item["id"], item["status"], item["accepted_by"]) for item in listed] == [
        (identity, "accepted", "erin")
    ]
    assert all("link" not in item for item in listed)
    entry = AuditEntry.objects.get(action="project.member")
    assert (entry.actor_name, entry.project) == ("erin", alice.project.pk)


def test_a_taken_name_spends_no_invitation(alice: Any) -> None:
    _, secret = invite(alice)
    assert code(accept(secret, username="alice", password="correct horse")) == (409, "name_taken")
    assert accept(secret, **NEW).status_code == 200


def test_a_user_of_another_team_joins_with_a_session_or_a_token(alice: Any, person: Any) -> None:
    charlie = person("charlie", team="blue")
    _, secret = invite(alice, role="viewer")
    page = browser(charlie.user)
    reply = page.post("/api/v1/invitations/accept", {"secret": secret}, content_type="application/json")
    assert reply.status_code == 200, reply.content
    seen = page.get("/api/v1/me", headers={"X-Oolong-Project": alice.project.pk}).json()
    assert seen["role"] == "viewer"

    _, weak = services.create_token(
        user=charlie.user, project=charlie.project, name="weak", scopes=["runs:read", "members:write"]
    )
    _, secret = invite(alice, role="admin")
    joined = as_token(weak)("POST", "/invitations/accept", {"secret": secret, "token_name": "ci"}).json()
    assert joined["token"] and as_token(joined["token"])("GET", "/me").json()["scopes"] == [
        "members:write", "runs:read",
    ], "no more power than the token that asked"  # fmt: skip
    _, secret = invite(alice, role="viewer")
    assert charlie.post("/invitations/accept", {"secret": secret}).status_code == 200
    assert Membership.objects.get(user=charlie.user, project=alice.project).role == "admin", "never lowered"


def test_a_session_needs_a_csrf_token_to_join(alice: Any, person: Any) -> None:
    _, secret = invite(alice)
    page = Client(enforce_csrf_checks=True)
    page.force_login(person("charlie", team="blue").user)
    refused = page.post("/api/v1/invitations/accept", {"secret": secret}, content_type="application/json")
    assert refused.status_code == 403
    assert Invitation.objects.get().accepted_at is None


def test_an_invitation_ends_by_time_by_revocation_and_with_its_makers_power(
    alice: Any, person: Any, clock: Any
) -> None:
    bob = person("bob", role=Role.ADMIN)
    _, late = invite(bob, days=1)
    identity, revoked = invite(bob, days=30)
    _, orphan = invite(bob, days=30)
    clock.forward(24 * 3600 + 1)
    assert alice.call("DELETE", f"/invitations/{identity}").status_code == 204
    assert alice.call("DELETE", f"/invitations/{identity}").status_code == 404
    Membership.objects.filter(user=bob.user).update(role=Role.EDITOR)
    for secret in (late, revoked, orphan, "oolinvite_guess"):
        assert code(accept(secret, **NEW)) == (410, "invitation_invalid")
    assert not User.objects.filter(username="erin").exists()


def test_only_a_teams_admin_invites_into_the_whole_team(head: Any, person: Any) -> None:
    bob = person("bob")
    assert code(bob.post("/invitations", {"role": "viewer", "level": "team"})) == (403, "missing_scope")
    _, secret = invite(head, role="operator", level="team")
    assert accept(secret, **NEW).status_code == 200
    erin = User.objects.get(username="erin")
    assert TeamMembership.objects.get(user=erin).role == "operator"
    assert {"erin"} <= {member["username"] for member in bob.get("/members").json()["data"]}


# --- service accounts


def test_a_service_account_has_a_role_tokens_and_no_way_to_log_in(alice: Any) -> None:
    made = alice.post("/service-accounts", {"name": "ci", "role": "editor"}).json()
    assert code(alice.post("/service-accounts", {"name": "ci", "role": "viewer"})) == (409, "name_taken")
    path = f"/service-accounts/{made['id']}"
    token = alice.post(f"{path}/tokens", {"name": "pipeline", "scopes": ["*"]}).json()
    assert (token["owner"], token["owner_id"]) == ("ci", made["id"])
    ci = as_token(token["token"])
    assert ci("GET", "/me").json()["role"] == "editor"
    assert ci("POST", "/datasets", {"name": "of-ci"}).status_code == 201
    assert ci("POST", "/tokens", {"name": "own", "scopes": ["runs:read"]}).status_code == 201
    assert AuditEntry.objects.filter(
        action="token.create", actor_kind="service_account", actor_id=made["id"]
    ).exists()
    assert alice.call("PATCH", path, {"role": "viewer"}).json()["role"] == "viewer"
    assert code(ci("POST", "/datasets", {"name": "more"})) == (403, "missing_scope"), (
        "a token is demoted at once"
    )
    assert not User.objects.get(pk=made["id"]).has_usable_password()
    _, secret = invite(alice)
    assert ci("POST", "/invitations/accept", {"secret": secret}).json()["code"] == "not_a_person"
    assert "ci" not in str(alice.get("/members").json())
    assert alice.call("DELETE", path).status_code == 204
    assert ci("GET", "/me").status_code == 401
    again = alice.post("/service-accounts", {"name": "ci", "role": "editor"})
    assert again.status_code == 201 and ci("GET", "/me").status_code == 401, "its old tokens stay dead"
    assert [item["name"] for item in alice.get("/service-accounts").json()["data"]] == ["ci"]


def test_a_list_of_service_accounts_asks_once_for_all(alice: Any, django_assert_max_num_queries: Any) -> None:
    for name in ("a", "b", "c"):
        made = alice.post("/service-accounts", {"name": name, "role": "viewer"}).json()
        for _ in range(2):
            alice.post(f"/service-accounts/{made['id']}/tokens", {"name": "t", "scopes": ["runs:read"]})
    with django_assert_max_num_queries(6):
        listed = alice.get("/service-accounts").json()["data"]
    assert {(row["name"], row["role"], row["tokens"]) for row in listed} == {
        ("a", "viewer", 2), ("b", "viewer", 2), ("c", "viewer", 2),
    }  # fmt: skip


# --- tokens


def test_a_rotated_token_overlaps_and_then_only_the_new_secret_works(alice: Any, clock: Any) -> None:
    made = alice.post("/tokens", {"name": "ci", "scopes": ["runs:read"]}).json()
    turned = alice.post(f"/tokens/{made['id']}/rotate", {"overlap_seconds": 600}).json()
    old, new = as_token(made["token"]), as_token(turned["token"])
    assert turned["id"] == made["id"] and turned["scopes"] == ["runs:read"]
    assert (old("GET", "/runs").status_code, new("GET", "/runs").status_code) == (200, 200)
    clock.forward(601)
    assert (old("GET", "/runs").status_code, new("GET", "/runs").status_code) == (401, 200)
    newest = as_token(alice.post(f"/tokens/{made['id']}/rotate", {"overlap_seconds": 0}).json()["token"])
    assert (new("GET", "/runs").status_code, newest("GET", "/runs").status_code) == (401, 200)
    bad = alice.post(f"/tokens/{made['id']}/rotate", {"overlap_seconds": 10**7})
    assert (bad.status_code, bad.json()["errors"][0]["pointer"]) == (422, "/overlap_seconds")


def test_a_token_that_manages_members_makes_nobody_mightier_than_itself(alice: Any, person: Any) -> None:
    """Else its holder would invite an admin, accept, and be one."""
    scopes = sorted({*ROLE_SCOPES[Role.VIEWER], "members:admin"})
    _, text = services.create_token(user=alice.user, project=alice.project, name="hr", scopes=scopes)
    ask, bob = as_token(text), person("bob", role=Role.VIEWER)
    for path, body in (
        ("/invitations", {}), ("/members", {"username": "bob"}), ("/service-accounts", {"name": "ci"}),
    ):  # fmt: skip
        for role in ("editor", "operator", "admin"):
            refused = ask("POST", path, {**body, "role": role})
            assert code(refused) == (403, "scope_exceeds_caller"), (path, role, refused.content)
            assert "ask with a token that has it all" in refused.json()["detail"]
    assert code(ask("PATCH", f"/members/{bob.user.pk}", {"role": "admin"})) == (403, "scope_exceeds_caller")
    made = ask("POST", "/service-accounts", {"name": "ci", "role": "viewer"})
    assert made.status_code == 201 and ask("POST", "/invitations", {"role": "viewer"}).status_code == 201
    path = f"/service-accounts/{made.json()['id']}"
    assert code(ask("PATCH", path, {"role": "admin"})) == (403, "scope_exceeds_caller")
    assert alice.call("PATCH", path, {"role": "admin"}).status_code == 200
    assert ask("PATCH", path, {"role": "viewer"}).status_code == 200, "down is no power"


def test_an_answer_is_repeated_to_the_token_that_got_it_and_to_no_other(alice: Any) -> None:
    """The answer is a token that may all; another token of the same user, which may less, does not get it."""
    _, text = services.create_token(
        user=alice.user, project=alice.project, name="weak", scopes=["tokens:write", "runs:read"]
    )
    asked = {"name": "strong", "scopes": ["*"]}
    made = alice.post("/tokens", asked, **{"Idempotency-Key": "once"})
    assert alice.post("/tokens", asked, **{"Idempotency-Key": "once"}).json() == made.json()
    other = as_token(text)("POST", "/tokens", asked, **{"Idempotency-Key": "once"})
    assert code(other) == (422, "idempotency_mismatch") and "ool_" not in other.content.decode()


def test_nobody_gets_a_secret_by_rotation_that_is_worth_more_or_is_anothers(alice: Any, person: Any) -> None:
    strong = ApiToken.objects.get(user=alice.user)
    _, weak = services.create_token(
        user=alice.user, project=alice.project, name="weak", scopes=["tokens:write", "runs:read"]
    )
    assert code(as_token(weak)("POST", f"/tokens/{strong.pk}/rotate", {})) == (403, "scope_exceeds_caller")
    bob = person("bob", role=Role.VIEWER)
    of_bob = ApiToken.objects.get(user=bob.user)
    assert alice.post(f"/tokens/{of_bob.pk}/rotate", {}).status_code == 404
    assert bob.post(f"/tokens/{strong.pk}/rotate", {}).status_code == 404


def test_an_admin_sees_and_ends_the_tokens_of_all(alice: Any, person: Any) -> None:
    bob = person("bob", role=Role.OPERATOR)
    assert {token["owner"] for token in alice.get("/tokens?all=true").json()["data"]} == {"alice", "bob"}
    assert {token["owner"] for token in alice.get("/tokens").json()["data"]} == {"alice"}
    assert code(bob.get("/tokens?all=true")) == (403, "missing_scope")
    of_alice, of_bob = ApiToken.objects.get(user=alice.user), ApiToken.objects.get(user=bob.user)
    assert bob.call("DELETE", f"/tokens/{of_alice.pk}").status_code == 404
    assert alice.call("DELETE", f"/tokens/{of_bob.pk}").status_code == 204
    assert bob.get("/me").status_code == 401


def test_a_token_that_has_ended_already_is_not_made(alice: Any, clock: Any) -> None:
    past = (clock.now - timedelta(seconds=1)).isoformat()
    refused = alice.post("/tokens", {"name": "late", "scopes": ["*"], "expires_at": past})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/expires_at")


def test_a_token_ends_after_90_days_unless_its_maker_says_otherwise(alice: Any, clock: Any) -> None:
    def expiry(path: str, **asked: Any) -> str | None:
        made = alice.post(path, {"name": "t", "scopes": ["runs:read"], **asked}).json()
        return made["expires_at"]  # type: ignore[no-any-return]

    account = alice.post("/service-accounts", {"name": "ci", "role": "editor"}).json()["id"]
    in_90_days = rfc3339(clock.now + timedelta(days=90))
    for path in ("/tokens", f"/service-accounts/{account}/tokens"):
        assert expiry(path) == in_90_days
        assert expiry(path, expires_at=None) is None
        tomorrow = rfc3339(clock.now + timedelta(days=1))
        assert expiry(path, expires_at=tomorrow) == tomorrow


def test_a_token_that_ends_says_when_with_every_answer(alice: Any, clock: Any) -> None:
    ends = clock.now + timedelta(days=3)
    _, text = services.create_token(
        user=alice.user, project=alice.project, name="short", scopes=["*"], expires_at=ends
    )
    ask = as_token(text)
    for path in ("/me", "/runs", "/runs/run_none"):
        assert ask("GET", path).headers["X-Oolong-Token-Expires"] == rfc3339(ends)
    assert ask("GET", "/me").json()["token"]["expires_at"] == rfc3339(ends)
    assert "X-Oolong-Token-Expires" not in alice.get("/me").headers, "one that never ends"


def test_a_token_that_ends_makes_and_rotates_none_that_outlives_it(
    alice: Any, person: Any, clock: Any
) -> None:
    soon, later = clock.now + timedelta(hours=1), clock.now + timedelta(days=9)
    _, text = services.create_token(
        user=alice.user, project=alice.project, name="short", scopes=["*"], expires_at=soon
    )
    ask = as_token(text)

    def made(**asked: str) -> Any:
        reply = ask("POST", "/tokens", {"name": "t", "scopes": ["runs:read"], **asked})
        return ApiToken.objects.get(pk=reply.json()["id"])

    account = ask("POST", "/service-accounts", {"name": "ci", "role": "editor"}).json()["id"]
    for_account = ask("POST", f"/service-accounts/{account}/tokens", {"name": "t", "scopes": ["runs:read"]})
    assert ApiToken.objects.get(pk=for_account.json()["id"]).expires_at == soon
    assert made().expires_at == made(expires_at=later.isoformat()).expires_at == soon
    sooner = soon - timedelta(minutes=1)
    assert (mine := made(expires_at=sooner.isoformat())).expires_at == sooner
    assert ask("POST", f"/tokens/{mine.pk}/rotate", {}).status_code == 200
    asked = {"name": "endless", "scopes": ["runs:read"], "expires_at": None}
    endless = alice.post("/tokens", asked).json()["id"]
    assert ApiToken.objects.get(pk=endless).expires_at is None, "made with a token that never ends"
    assert code(ask("POST", f"/tokens/{endless}/rotate", {})) == (403, "scope_exceeds_caller")
    _, secret = invite(person("bob", team="blue"))
    assert ask("POST", "/invitations/accept", {"secret": secret, "token_name": "joined"}).status_code == 200
    assert ApiToken.objects.get(name="joined").expires_at == soon


def test_use_is_written_down_once_a_minute(alice: Any, clock: Any, django_assert_num_queries: Any) -> None:
    alice.get("/me")
    seen = ApiToken.objects.get().last_used_at
    clock.forward(30)
    alice.get("/me")
    assert ApiToken.objects.get().last_used_at == seen
    clock.forward(31)
    alice.get("/me")
    assert ApiToken.objects.get().last_used_at == clock.now


def test_the_embedded_user_administers_the_installation_and_its_team(db: None) -> None:
    project = services.init_embedded()
    admin = User.objects.get()
    assert admin.is_staff and TeamMembership.objects.get(user=admin, team=project.team).role == "admin"


def test_the_installation_keeps_an_admin(db: None) -> None:
    services.init_embedded()
    erin = User.objects.create(username="erin")
    with pytest.raises(CommandError, match="last admin"):
        call_command("grant_admin", "admin", "--remove")
    call_command("grant_admin", "erin", stdout=io.StringIO())
    call_command("grant_admin", "admin", "--remove", stdout=io.StringIO())
    erin.refresh_from_db()
    assert erin.is_staff and not User.objects.get(username="admin").is_staff
    assert AuditEntry.objects.filter(action="installation.admin").count() == 2
    with pytest.raises(CommandError, match="nobody"):
        call_command("grant_admin", "nobody")


def test_one_idempotency_key_in_two_projects_is_a_mistake(head: Any) -> None:
    second = head.post("/projects", {"name": "second"}).json()["id"]
    page = browser(head.user)

    def make(**headers: str) -> Any:
        return page.post(
            "/api/v1/datasets", {"name": "d"}, content_type="application/json",
            headers={"Idempotency-Key": "once", **headers},
        )  # fmt: skip

    assert (make().status_code, make().status_code) == (201, 201)
    assert code(make(**{"X-Oolong-Project": second})) == (422, "idempotency_mismatch")
