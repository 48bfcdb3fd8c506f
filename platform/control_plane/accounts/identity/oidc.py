"""Sign-in with an identity provider: OpenID Connect, code flow with PKCE, state and nonce.

django-allauth speaks the protocol; who the subject is here and what it may do is ours (`oidc_services`), and none of
allauth's own pages exist. Off until OOLONG_OIDC_ISSUER names a provider.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import Any, NoReturn

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount import app_settings
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import jwtkit
from allauth.socialaccount.models import SocialApp, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.http import url_has_allowed_host_and_scheme
from requests import RequestException, Session

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity import oidc_sign_in, services
from control_plane.accounts.identity.provider_http import provider_session
from control_plane.config import Oidc
from control_plane.core.api.errors import problem_response
from control_plane.core.infra import clock

START = "/login/oidc"
CALLBACK = "/login/oidc/callback"


def configured() -> Oidc | None:
    oidc: Oidc | None = settings.ENVIRONMENT.oidc
    return oidc


def provider_id(oidc: Oidc) -> str:
    """Subjects are unique within an issuer: with another issuer they are others."""
    return "oidc-" + hashlib.sha256(oidc.issuer.encode()).hexdigest()[:16]


class Protocol(OpenIDConnectOAuth2Adapter):
    """allauth's client, with the checks that it leaves out: issuer, signature, and no word but the ID token's."""

    @property
    def openid_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().openid_config
        oidc = configured()
        if oidc is None or config.get("issuer") != oidc.issuer:
            raise OAuth2Error(f"the provider says it is {config.get('issuer')!r}")
        return config

    def complete_login(self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any) -> SocialLogin:
        text = kwargs["response"].get("id_token")
        if not isinstance(text, str):
            raise OAuth2Error("the provider sent no ID token")
        try:
            claims = jwtkit.verify_and_decode(
                credential=text,
                keys_url=self.openid_config["jwks_uri"],
                issuer=self.openid_config["issuer"],
                audience=app.client_id,
                lookup_kid=jwtkit.lookup_kid_jwk,
            )
        except (KeyError, ValueError, TypeError) as error:
            raise OAuth2Error(f"the ID token or the provider's keys lack something: {error}") from error
        if not claims.get("sub"):
            raise OAuth2Error("the ID token names no subject")
        return self.get_provider().sociallogin_from_response(request, {"id_token": claims})

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        public: str = settings.ENVIRONMENT.public_url.rstrip("/")
        return public + CALLBACK if public else request.build_absolute_uri(CALLBACK)


class SocialAccountAdapter(DefaultSocialAccountAdapter):
    """allauth's hooks: the provider comes from the environment, and what follows a login is ours."""

    def get_app(self, request: HttpRequest, provider: str, client_id: str | None = None) -> SocialApp:
        oidc = configured()
        if oidc is None:
            raise SocialApp.DoesNotExist
        return SocialApp(
            provider="openid_connect", provider_id=provider_id(oidc), name=oidc.name, client_id=oidc.client_id,
            secret=oidc.client_secret,
            settings={"server_url": oidc.issuer, "oauth_pkce_enabled": True},
        )  # fmt: skip

    def get_requests_session(self) -> Session:
        """For every request to the provider: discovery, keys, tokens."""
        oidc = configured()
        assert oidc is not None
        return provider_session(oidc, seconds=app_settings.REQUESTS_TIMEOUT)

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> NoReturn:
        """The provider has spoken and the token is verified. What comes of it, and nothing of allauth's after."""
        claims = sociallogin.account.extra_data["id_token"]
        nonce = sociallogin.state.get("nonce")
        if not nonce or not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise ImmediateHttpResponse(_refused(request, "the ID token is not for this sign-in (nonce)"))
        raise ImmediateHttpResponse(_sign_in(request, claims, sociallogin.state.get("next") or "/"))

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> NoReturn:
        reason = str(exception) if exception else "it was given up, or took too long"
        raise ImmediateHttpResponse(_refused(request, reason))


def take_lapsed_roles(*, now: datetime) -> int:
    """Of the provider that is configured; see `oidc_services`."""
    oidc = configured()
    if oidc is None:
        return 0
    return oidc_sign_in.revoke_expired_roles(provider_id(oidc), oidc.roles, days=oidc.role_days, now=now)


def start(request: HttpRequest) -> HttpResponse:
    """GET /login/oidc?next=/runs: to the provider."""
    oidc = configured()
    if oidc is None:
        return problem_response(request, 404, "not_found", "no identity provider is configured")
    wanted = request.GET.get("next", "/")
    inside = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    nonce = secrets.token_urlsafe(24)
    provider = Protocol(request, provider_id(oidc)).get_provider()
    provider.oauth2_adapter_class = Protocol
    try:
        response: HttpResponse = provider.redirect(
            request,
            AuthProcess.LOGIN,
            next_url=wanted if inside else "/",
            auth_params={"nonce": nonce},
            nonce=nonce,
        )
    except (OAuth2Error, RequestException, KeyError) as error:
        return _refused(request, f"the identity provider cannot be asked: {error}")
    return response


def callback(request: HttpRequest) -> HttpResponse:
    """GET /login/oidc/callback: back from the provider."""
    oidc = configured()
    if oidc is None:
        return problem_response(request, 404, "not_found", "no identity provider is configured")
    view = OAuth2CallbackView.adapter_view(Protocol(request, provider_id(oidc)))
    response: HttpResponse = view(request)
    response["Referrer-Policy"] = "no-referrer"
    response["Cache-Control"] = "no-store"
    return response


def _sign_in(request: HttpRequest, claims: dict[str, Any], next_url: str) -> HttpResponse:
    oidc = configured()
    assert oidc is not None
    now = clock.now()
    user = oidc_sign_in.user_of_identity(provider_id(oidc), claims, link_by_email=oidc.link_by_email, now=now)
    if not user.is_active:
        return _refused(request, f"the user {user.username!r} is switched off")
    if oidc.roles:
        said = claims.get(oidc.role_claim, [])
        held = (
            {said}
            if isinstance(said, str)
            else {str(item) for item in said}
            if isinstance(said, list)
            else set()
        )
        oidc_sign_in.apply_roles(user, held, oidc.roles, now=now)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    # What the provider says by then is heard by then: an end that no use of the session puts off.
    request.session.set_expiry(now + timedelta(hours=oidc.session_hours))
    services.note_login(request, user, "identity provider", now=now)
    return HttpResponseRedirect(next_url)


def _refused(request: HttpRequest, reason: str) -> HttpResponse:
    audit_log.record("login.failed", target=("user", ""), project="", message=reason[:500])
    return HttpResponse(
        f"Signing in did not work: {reason}. Try again: {START}\n",
        status=403,
        content_type="text/plain; charset=utf-8",
    )
