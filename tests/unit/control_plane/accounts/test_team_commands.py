"""Teams from the command line and the SDK, against this very control plane."""

from __future__ import annotations

import json
from typing import Any

import pytest

from control_plane.accounts.models import Role, TeamMembership, User
from oolong.client.invitations import accept_link, secret_of, url_of


@pytest.fixture(autouse=True)
def _quick_hashing(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def head(alice: Any) -> Any:
    TeamMembership.objects.create(user=alice.user, team=alice.project.team, role=Role.ADMIN)
    User.objects.filter(pk=alice.user.pk).update(is_staff=True)
    return alice


def test_teams_and_projects_are_made_and_renamed(head: Any, oolong: Any) -> None:
    made = json.loads(oolong("team", "create", "green", "--json").out)
    assert (made["name"], made["project"]["name"]) == ("green", "default")
    assert oolong("team", "rename", "crimson").code == 0
    assert {line.split("\t")[1] for line in oolong("team", "list").out.splitlines()} == {"crimson", "green"}
    assert oolong("team", "create", "green").code != 0
    assert oolong("project", "create", "second").code == 0
    assert json.loads(oolong("project", "rename", "first", "--json").out)["name"] == "first"
    listed = [line.split("\t")[1:] for line in oolong("project", "list").out.splitlines()]
    assert sorted(listed) == [["crimson", "first"], ["crimson", "second"]]


def test_members_are_listed_added_changed_and_removed(head: Any, person: Any, oolong: Any) -> None:
    person("bob", project="elsewhere")
    assert oolong("member", "add", "bob", "viewer").code == 0
    assert oolong("member", "set", "bob", "editor").code == 0
    assert "bob\teditor\teditor\t-" in oolong("member", "list").out
    assert oolong("member", "add", "bob", "operator", "--team").code == 0
    assert "bob\toperator\teditor\toperator" in oolong("member", "list", "--team").out
    assert oolong("member", "remove", "bob").code == 0
    refused = oolong("member", "remove", "alice", "--team")
    assert refused.code != 0 and "last admin" in refused.err
    unknown = oolong("member", "set", "nobody", "viewer", "--json")
    assert unknown.code == 2 and "nobody" in json.loads(unknown.err)["error"]
    assert json.loads(oolong("member", "add", "bob", "viewer", "--json").out)["role"] == "operator"
    assert set(json.loads(oolong("member", "remove", "bob", "--json").out)) == {"removed"}
    assert oolong("member", "add", "bob", "boss").code == 2


def test_a_new_user_joins_by_a_link(alice: Any, oolong: Any) -> None:
    link = oolong("invite", "create", "editor", "--note", "Erin").out.strip()
    assert url_of(link) == "http://testserver"
    joined = accept_link(
        url_of(link), secret_of(link), username="erin", password="correct horse", token_name="cli"
    )
    assert (joined.username, joined.role) == ("erin", "editor") and joined.token
    assert "accepted\teditor\tproject\tErin" in oolong("invite", "list").out
    identity = json.loads(oolong("invite", "create", "viewer", "--json").out)["id"]
    assert json.loads(oolong("invite", "revoke", identity, "--json").out) == {"revoked": identity}
    spent = oolong("invite", "accept", link)
    assert spent.code != 0 and "ask for another" in spent.err


def test_a_service_account_gets_a_token_that_rotates(alice: Any, oolong: Any) -> None:
    assert oolong("service-account", "create", "ci", "editor").code == 0
    text = oolong("service-account", "token", "ci", "--scope", "runs:*", "--name", "nightly").out.strip()
    assert text.startswith("ool_")
    listed = json.loads(oolong("token", "list", "--all", "--json").out)
    token = next(token for token in listed if token["name"] == "nightly")
    assert token["owner"] == "ci"
    turned = oolong("token", "rotate", token["id"], "--overlap", "5").out.strip()
    assert turned.startswith("ool_") and turned != text
    assert oolong("service-account", "set", "ci", "viewer").code == 0
    assert "\tci\tviewer\t1\t" in oolong("service-account", "list").out
    assert oolong("service-account", "delete", "ci").code == 0
    assert oolong("service-account", "delete", "ci").code == 2
