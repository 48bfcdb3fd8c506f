"""Sign-in with an identity provider: a small scripted one on loopback, which can be told to misbehave."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import pytest
from allauth.socialaccount.models import SocialAccount, SocialToken
from cryptography.hazmat.primitives.asymmetric import rsa
from django.test import Client

from control_plane.accounts.identity import oidc, services
from control_plane.accounts.models import ApiToken, AuditEntry, Membership, Project, TeamMembership, User
from control_plane.config import InvalidSetting, Oidc, oidc_role

KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
CLIENT, SECRET = "oolong", "the client's secret"


class Provider:
    """Discovery, keys and tokens. `claims` go over what is true; `changes` break the rest."""

    def __init__(self) -> None:
        self.claims: dict[str, Any] = {}
        self.key: Any = KEY
        self.says_issuer = ""
        self.sends_id_token = True
        self.challenges: dict[str, tuple[str, str]] = {}  # code -> PKCE challenge, nonce
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = provider.discovery() if "openid-configuration" in self.path else provider.keys()
                self._answer(200, answer)

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(*provider.token({name: values[0] for name, values in form.items()}))

            def _answer(self, status: int, document: Any) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.says_issuer or self.issuer, "jwks_uri": f"{self.issuer}/keys",
            "authorization_endpoint": f"{self.issuer}/authorize", "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }  # fmt: skip

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
        return {"keys": [{**public, "kid": "k1", "alg": "RS256", "use": "sig"}]}

    def authorize(self, url: str) -> str:
        """The user agrees: the query of the way back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT)
        assert set(asked["scope"].split()) == {"openid", "profile", "email"}
        assert asked["code_challenge_method"] == "S256"
        code = f"code-{len(self.challenges)}"
        self.challenges[code] = (asked["code_challenge"], asked["nonce"])
        return urlencode({"code": code, "state": asked["state"]})

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        challenge, nonce = self.challenges.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if (
            base64.urlsafe_b64encode(digest).decode().rstrip("=") != challenge
            or form["client_secret"] != SECRET
        ):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": "subject-1", "nonce": nonce, "iat": now, "exp": now + 300,
            "preferred_username": "erin", "email": "erin@example.org", "email_verified": True, **self.claims,
        }  # fmt: skip
        text = jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": "k1"})
        return 200, {"access_token": "a", "token_type": "Bearer"} | (
            {"id_token": text} if self.sends_id_token else {}
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.server.shutdown()


@pytest.fixture
def provider(server: Provider, settings: Any, db: None) -> Provider:
    server.claims, server.key, server.says_issuer, server.sends_id_token = {}, KEY, "", True
    configure(settings, server)
    settings.SOCIALACCOUNT_REQUESTS_TIMEOUT = 60  # a provider that stands still for a moment is not away
    return server


def configure(settings: Any, provider: Provider, *roles: str, **changes: Any) -> None:
    configured = Oidc(
        issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET, name="Example", role_claim="groups",
        roles=tuple(oidc_role(text) for text in roles), **changes,
    )  # fmt: skip
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, oidc=configured)


def sign_in(provider: Provider, browser: Client | None = None, *, next_page: str = "") -> tuple[Any, Client]:
    browser = browser or Client()
    away = browser.get("/login/oidc" + (f"?next={next_page}" if next_page else ""))
    assert away.status_code == 302, away.content
    return browser.get(f"/login/oidc/callback?{provider.authorize(away['Location'])}"), browser


def signed_in(browser: Client) -> bool:
    return "_auth_user_id" in browser.session


def test_a_first_sign_in_makes_a_user_and_the_next_finds_it(provider: Provider) -> None:
    back, browser = sign_in(provider, next_page="/runs")
    assert (back.status_code, back["Location"]) == (302, "/runs")
    assert signed_in(browser)
    provider.claims = {"preferred_username": "renamed", "email": "other@example.org"}
    sign_in(provider)
    user = User.objects.get()
    assert (user.username, user.email, user.has_usable_password()) == ("erin", "erin@example.org", False)
    assert SocialAccount.objects.get().uid == "subject-1"
    assert not SocialToken.objects.exists()
    assert [entry.action for entry in AuditEntry.objects.order_by("pk")] == ["user.create", "login", "login"]


def test_the_provider_is_asked_with_pkce_state_and_nonce_and_for_our_address(provider: Provider) -> None:
    asked = parse_qs(urlsplit(Client().get("/login/oidc")["Location"]).query)
    assert asked["redirect_uri"] == ["http://testserver/login/oidc/callback"]
    assert all(len(asked[name][0]) >= 8 for name in ("state", "nonce", "code_challenge"))


@pytest.mark.parametrize(
    "claims",
    [{"nonce": "another"}, {"nonce": None}, {"aud": "another-client"}, {"iss": "https://evil.example.org"}, {"exp": 1},
     {"sub": ""}],
)  # fmt: skip
def test_a_token_that_is_not_for_this_sign_in_is_refused(provider: Provider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    back, browser = sign_in(provider)
    assert (back.status_code, signed_in(browser), User.objects.count()) == (403, False, 0)
    assert AuditEntry.objects.get().action == "login.failed"


def test_a_token_with_another_signature_is_refused(provider: Provider) -> None:
    provider.key = OTHER_KEY
    assert sign_in(provider)[0].status_code == 403
    assert not User.objects.exists()


def test_a_provider_that_says_it_is_another_or_sends_no_identity_is_refused(provider: Provider) -> None:
    provider.sends_id_token = False
    assert sign_in(provider)[0].status_code == 403
    provider.says_issuer = "https://evil.example.org"
    assert Client().get("/login/oidc").status_code == 403


def test_a_way_back_with_another_state_or_used_twice_is_refused(provider: Provider) -> None:
    browser = Client()
    away = browser.get("/login/oidc")["Location"]
    way_back = provider.authorize(away)
    assert Client().get(f"/login/oidc/callback?{way_back}").status_code == 403, "another browser"
    assert browser.get("/login/oidc/callback?code=x&state=guess").status_code == 403
    assert browser.get("/login/oidc/callback").status_code == 403
    assert browser.get(f"/login/oidc/callback?{way_back}").status_code == 302
    assert browser.get(f"/login/oidc/callback?{way_back}").status_code == 403


def test_without_being_allowed_an_address_means_nobody(provider: Provider) -> None:
    erin = User.objects.create(username="old-erin", email="erin@example.org")
    sign_in(provider)
    assert SocialAccount.objects.get().user != erin


def test_a_mailbox_that_changed_hands_is_not_its_former_owner(provider: Provider, settings: Any) -> None:
    configure(settings, provider, link_by_email=True)
    erin = User.objects.create(username="old-erin", email="erin@example.org")
    sign_in(provider)
    assert SocialAccount.objects.get(uid="subject-1").user == erin
    provider.claims = {"sub": "subject-2", "preferred_username": "eric"}
    sign_in(provider)
    assert SocialAccount.objects.get(uid="subject-2").user.username == "eric"


def test_a_browser_asks_the_provider_again_after_its_hours(provider: Provider, settings: Any) -> None:
    configure(settings, provider, session_hours=2)
    _, browser = sign_in(provider)
    seconds = browser.session.get_expiry_age()
    assert 7000 < seconds <= 7200
    session = browser.session
    session["project"] = "another"  # the session is used, and written
    session.save()
    assert browser.session.get_expiry_age() <= seconds, "its end is put off by no use"


def test_who_does_not_come_again_loses_what_the_provider_gave(
    provider: Provider, settings: Any, person: Any
) -> None:
    bob = person("bob")
    configure(settings, provider, "ml=red:editor", "ml=red/default:operator")
    provider.claims = {"groups": ["ml"]}
    sign_in(provider)
    user = User.objects.get(username="erin")
    token, _ = services.create_token(user=user, project=bob.project, name="t", scopes=["*"])
    now = datetime.now(UTC)
    assert oidc.take_lapsed_roles(now=now + timedelta(days=29)) == 0
    configure(settings, provider, "ml=red:editor", "ml=red/default:operator", role_days=0)
    assert oidc.take_lapsed_roles(now=now + timedelta(days=999)) == 0
    configure(settings, provider, "ml=red:editor", "ml=red/default:operator")
    assert oidc.take_lapsed_roles(now=now + timedelta(days=31)) == 1
    assert not user.memberships.exists() and not user.team_memberships.exists()
    token.refresh_from_db()
    assert token.revoked_at is not None and bob.user.memberships.exists()
    assert oidc.take_lapsed_roles(now=now + timedelta(days=31)) == 0, "nothing is left to take"
    sign_in(provider)
    assert user.team_memberships.exists(), "the next sign-in gives it again"


def test_an_account_whose_sign_ins_were_not_counted_loses_nothing_while_its_user_comes(
    provider: Provider, settings: Any, person: Any
) -> None:
    """Rows of before: the account has the time of the first sign-in, only the user that of the last."""
    person("bob")
    configure(settings, provider, "ml=red:editor")
    provider.claims = {"groups": ["ml"]}
    sign_in(provider)
    now = datetime.now(UTC)
    SocialAccount.objects.update(last_login=now - timedelta(days=400))
    user = User.objects.get(username="erin")
    assert oidc.take_lapsed_roles(now=now) == 0 and user.team_memberships.exists()
    User.objects.filter(pk=user.pk).update(last_login=now - timedelta(days=400))
    sign_in(provider)
    user.refresh_from_db()
    assert user.last_login is not None
    assert min(user.last_login, SocialAccount.objects.get().last_login) >= now, "a sign-in is noted in both"
    User.objects.filter(pk=user.pk).update(last_login=None)
    SocialAccount.objects.update(last_login=now - timedelta(days=31))
    assert oidc.take_lapsed_roles(now=now) == 1 and not user.team_memberships.exists()


def test_the_last_admin_stays_however_long_ago_the_sign_in(
    provider: Provider, settings: Any, person: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bob = person("bob")
    Membership.objects.all().delete()
    TeamMembership.objects.all().delete()
    configure(settings, provider, "ml=red:admin", "ml=red/default:admin")
    provider.claims = {"groups": ["ml"]}
    sign_in(provider)
    user = User.objects.get(username="erin")
    token, _ = services.create_token(user=user, project=bob.project, name="t", scopes=["*"])
    late = datetime.now(UTC) + timedelta(days=31)
    assert oidc.take_lapsed_roles(now=late) == 0
    assert "the last admin of the team red" in caplog.text
    assert user.team_memberships.get().role == user.memberships.get().role == "admin"
    token.refresh_from_db()
    assert token.revoked_at is None
    TeamMembership.objects.create(user=bob.user, team=bob.project.team, role="admin")
    User.objects.filter(pk=bob.user.pk).update(is_active=False)
    assert oidc.take_lapsed_roles(now=late) == 0, "who is switched off manages nothing"
    User.objects.filter(pk=bob.user.pk).update(is_active=True)
    assert oidc.take_lapsed_roles(now=late) == 1
    assert not user.team_memberships.exists() and not user.memberships.exists()


def test_a_verified_address_means_the_user_who_has_it_and_an_unverified_one_nobody(
    provider: Provider, settings: Any
) -> None:
    configure(settings, provider, link_by_email=True)
    erin = User.objects.create(username="old-erin", email="Erin@example.org")
    provider.claims = {"email_verified": False}
    sign_in(provider)
    stranger = SocialAccount.objects.get(uid="subject-1").user
    assert (stranger.username, stranger.email) == ("erin", ""), "not Erin's account"
    provider.claims = {"sub": "subject-2", "email_verified": "true"}
    sign_in(provider)
    assert SocialAccount.objects.get(uid="subject-2").user not in (erin, stranger), (
        "a text is no verification"
    )
    provider.claims = {"sub": "subject-3"}
    sign_in(provider)
    assert SocialAccount.objects.get(uid="subject-3").user == erin


def test_a_user_who_is_switched_off_is_not_let_in(provider: Provider) -> None:
    sign_in(provider)
    User.objects.update(is_active=False)
    back, browser = sign_in(provider)
    assert (back.status_code, signed_in(browser)) == (403, False)


def test_groups_give_and_take_roles(provider: Provider, settings: Any, person: Any) -> None:
    project = person("alice").project
    configure(
        settings, provider, "ml=red:viewer", "leads=red/default:operator", "all=red:editor", "x=nowhere:admin"
    )
    provider.claims = {"groups": ["ml", "leads", "all"]}
    sign_in(provider)
    user = User.objects.get(username="erin")
    assert TeamMembership.objects.get(user=user).role == "editor", "the highest of two"
    assert Membership.objects.get(user=user, project=project).role == "operator"
    provider.claims = {"groups": "ml"}
    sign_in(provider)
    assert TeamMembership.objects.get(user=user).role == "viewer"
    assert not Membership.objects.filter(user=user).exists()
    assert AuditEntry.objects.filter(action="member.role", project=project.pk).count() == 2
    assert Membership.objects.filter(user__username="alice").exists()


def test_a_role_that_ends_at_a_sign_in_ends_its_tokens_and_streams(
    provider: Provider, settings: Any, person: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[str]] = []
    monkeypatch.setattr("control_plane.accounts.identity.oidc_sign_in.publish_access_change", told.append)
    project = person("alice").project
    second = Project.objects.create(team=project.team, name="second")
    configure(settings, provider, "all=red:editor", "leads=red/default:operator")
    provider.claims = {"groups": ["all"]}
    sign_in(provider)
    user = User.objects.get(username="erin")
    token, lost = (
        services.create_token(user=user, project=of, name="t", scopes=["*"])[0] for of in (project, second)
    )
    told.clear()
    sign_in(provider)
    assert told == [], "nothing changed"

    def revoked() -> list[bool]:
        return [ApiToken.objects.get(pk=row.pk).revoked_at is not None for row in (token, lost)]

    provider.claims = {"groups": ["leads"]}
    sign_in(provider)
    assert (told, revoked()) == ([[user.pk]], [False, True]), "a role in the project is left"
    provider.claims = {"groups": []}
    sign_in(provider)
    assert (told, revoked()) == ([[user.pk]] * 2, [True, True])


@pytest.mark.parametrize(
    "target", ["https://evil.example.org", "//evil.example.org", "javascript:alert(1)", "/\\evil"]
)
def test_a_sign_in_ends_at_a_page_of_ours(provider: Provider, target: str) -> None:
    assert sign_in(provider, next_page=target)[0]["Location"] == "/"


def test_without_a_provider_there_are_no_such_pages(db: None) -> None:
    for path in ("/login/oidc", "/login/oidc/callback"):
        assert Client().get(path).status_code == 404
    assert json.loads(Client().get("/api/v1/session/methods").content) == {"password": True, "oidc": None}


def test_the_dashboard_learns_of_the_button(provider: Provider) -> None:
    said = json.loads(Client().get("/api/v1/session/methods").content)
    assert said["oidc"] == {"name": "Example", "url": "/login/oidc"}


@pytest.mark.parametrize("path", ["/accounts/signup/", "/accounts/login/", "/accounts/social/signup/"])
def test_pages_of_the_library_do_not_exist(provider: Provider, path: str) -> None:
    page = Client().get(path).content.decode()
    assert "csrfmiddlewaretoken" not in page


@pytest.mark.parametrize("text", ["", "ml", "ml=red", "=red:viewer", "ml=red:owner", "ml=:viewer"])
def test_a_faulty_rule_for_roles_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(InvalidSetting, match="OOLONG_OIDC_ROLES"):
        oidc_role(text)
