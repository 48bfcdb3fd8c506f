from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_protect, ensure_csrf_cookie
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.accounts import selectors
from control_plane.accounts.identity import services
from control_plane.accounts.identity.authentication import SESSION_PROJECT, session_caller
from control_plane.accounts.identity.caller import Caller, caller_of
from control_plane.core.api.base_view import ApiView
from control_plane.core.api.endpoints import endpoint
from control_plane.core.api.errors import Problem, or_not_found
from control_plane.core.api.etags import conditional
from control_plane.core.api.rendering import ResponseSerializer
from control_plane.core.api.request_parsing import StrictSerializer, name_field
from control_plane.core.api.validation_messages import secret_field
from control_plane.core.infra import clock
from control_plane.core.infra.health import readiness
from control_plane.core.infra.periodic_tasks import TICKS, ticks_health

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._ -]*$"
NAME_WORDS = "letters, digits, spaces and . _ -, a letter or a digit first"


class NamedSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()


class MeUserSerializer(ResponseSerializer):
    id = serializers.CharField()
    username = serializers.CharField()


class MeTokenSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    expires_at = serializers.DateTimeField(allow_null=True, help_text="null: never")


class MeLoginSerializer(ResponseSerializer):
    how = serializers.ChoiceField(choices=services.LOGIN_METHODS)
    at = serializers.DateTimeField()


class MeSerializer(ResponseSerializer):
    user = MeUserSerializer()
    team = NamedSerializer(source="project.team")
    project = NamedSerializer()
    role = serializers.CharField()
    scopes = serializers.ListField(child=serializers.CharField(), source="sorted_scopes")
    token = MeTokenSerializer(allow_null=True, help_text="the token of this request; null: a session")
    login = MeLoginSerializer(
        allow_null=True,
        help_text="how the browser session began; null: a token, or a session older than this field",
    )

    @classmethod
    def render_for(cls, caller: Caller, session: SessionBase | None) -> dict[str, Any]:
        login = session.get(services.SESSION_LOGIN) if session is not None and caller.token is None else None
        return cls.render({**vars(caller), "sorted_scopes": caller.sorted_scopes, "login": login})


class LoginSerializer(StrictSerializer):
    username = serializers.CharField(max_length=120)
    password = secret_field(max_length=1024, trim_whitespace=False)


class CsrfSerializer(ResponseSerializer):
    csrf_token = serializers.CharField()


class ProjectSerializer(ResponseSerializer):
    id = serializers.CharField()
    name = serializers.CharField()
    team = NamedSerializer()
    tested_rewards = serializers.BooleanField(
        help_text="an rl run is taken only with a green test of its reward on its dataset version"
    )


class ProjectChangeSerializer(StrictSerializer):
    name = name_field(NAME_PATTERN, NAME_WORDS, max_length=120, required=False)
    tested_rewards = serializers.BooleanField(required=False)


class ProjectEventSerializer(ResponseSerializer):
    id = serializers.CharField(source="project_event_id")
    at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_name")
    kind = serializers.CharField(source="project_event_kind")
    message = serializers.CharField()
    data = serializers.DictField()


class HealthSerializer(ResponseSerializer):
    db = serializers.CharField(help_text="ok, or what is wrong")
    broker = serializers.CharField(help_text="ok, or what is wrong; a lost broker only delays")
    store = serializers.CharField(help_text="ok, or what is wrong with the storage of files")
    scheduler = serializers.CharField(help_text="ok, or since when no worker has placed jobs")
    webhooks = serializers.CharField(help_text="ok, or since when no process has sent webhooks")


class MeView(ApiView):
    scopes = {"GET": None}

    @endpoint("me", returns=MeSerializer)
    def get(self, request: Request) -> object:
        """Get the caller.

        The user, project, role and scopes of the credential of this request.
        """
        return Response(MeSerializer.render_for(caller_of(request), request._request.session))


class ProjectView(ApiView):
    """The project that the caller's token or session is of."""

    scopes = {"GET": "project:read", "PATCH": "project:admin"}

    @endpoint("get_project", returns=ProjectSerializer)
    def get(self, request: Request) -> object:
        """Get the project.

        The project of the caller's token or session.
        """
        return selectors.project(caller_of(request))

    @conditional
    @endpoint("change_project", body=ProjectChangeSerializer, returns=ProjectSerializer)
    def patch(self, request: Request, fields: dict[str, Any]) -> object:
        """Change the project.

        Only what is given changes: name, whether trainers may run code of users, whether rewards must be
        tested.
        """
        caller = caller_of(request)
        services.change_project(caller, **fields, now=clock.now())
        return selectors.project(caller)


class ProjectEventsView(ApiView):
    scopes = {"GET": "project:read"}

    @endpoint("list_project_events", page=ProjectEventSerializer)
    def get(self, request: Request) -> object:
        """List project events.

        Changes of the project that every reader sees, newest first.
        """
        return selectors.project_events(caller_of(request))


class SessionView(ApiView):
    permission_classes = [AllowAny]

    @method_decorator(csrf_protect)
    @endpoint("log_in", body=LoginSerializer, returns=MeSerializer, auth=[])
    def post(self, request: Request, fields: dict[str, Any]) -> object:
        """Log in with a password.

        Starts a browser session. After repeated failures for one name from one address, that address waits.
        """
        user = services.log_in(
            request._request,
            username=fields["username"],
            password=fields["password"],
            address=request.META.get("REMOTE_ADDR", ""),
            now=clock.now(),
        )
        caller = session_caller(user, request._request.session)
        if caller is None:
            raise Problem(403, "no_project", f"the user {user.username!r} is in no project")
        return Response(MeSerializer.render_for(caller, request._request.session))

    @method_decorator(csrf_protect)
    @endpoint("log_out")
    def delete(self, request: Request) -> None:
        """Log out.

        Ends the session and the streams that it has open.
        """
        services.log_out(request._request)


class SessionProjectSerializer(StrictSerializer):
    project = serializers.CharField(max_length=40, help_text="id of one of your projects")


class SessionProjectView(ApiView):
    """Which of a user's projects the browser's session is in; the header X-Oolong-Project wins for one request."""

    scopes = {"PUT": None}

    @endpoint("choose_session_project", body=SessionProjectSerializer, returns=MeSerializer)
    def put(self, request: Request, fields: dict[str, Any]) -> object:
        """Choose the session's project.

        The project that the browser session works in. The header X-Oolong-Project overrides it for one
        request.
        """
        if caller_of(request).token is not None:
            raise Problem(403, "token_bound", "a token is of one project; take one of the project you want")
        named = fields["project"]
        caller = or_not_found(selectors.caller_of_user(caller_of(request).user, named), "project", named)
        request._request.session[SESSION_PROJECT] = named
        return Response(MeSerializer.render_for(caller, request._request.session))


class OidcButtonSerializer(ResponseSerializer):
    name = serializers.CharField(help_text="what the button says")
    url = serializers.CharField(help_text="where it leads")


class SessionMethodsSerializer(ResponseSerializer):
    password = serializers.BooleanField()
    oidc = OidcButtonSerializer(allow_null=True)


class SessionMethodsView(ApiView):
    """How one may sign in here."""

    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []

    @extend_schema(operation_id="session_methods", responses=SessionMethodsSerializer, auth=[])
    def get(self, request: Request) -> Response:
        """List the ways to log in.

        Whether passwords are accepted, and the identity provider's button.
        """
        oidc = settings.ENVIRONMENT.oidc
        button = {"name": oidc.name, "url": "/login/oidc"} if oidc else None
        return Response({"password": True, "oidc": button})


class CsrfView(ApiView):
    permission_classes = [AllowAny]

    @extend_schema(operation_id="csrf_token", responses=CsrfSerializer, auth=[])
    @method_decorator(ensure_csrf_cookie)
    def get(self, request: Request) -> Response:
        """Get a CSRF token.

        Browsers send it as X-CSRFToken with every change.
        """
        return Response({"csrf_token": get_token(request._request)})


class HealthView(ApiView):
    permission_classes = [AllowAny]
    authentication_classes: list[Any] = []

    @extend_schema(operation_id="health", responses={200: HealthSerializer, 503: HealthSerializer}, auth=[])
    def get(self, request: Request) -> Response:
        """Check that the API answers.

        Free of charge and open to everybody; use `/readyz` for routing.
        """
        found = readiness.found()
        state = {"db": found["database"], "broker": found["broker"], "store": found["store"]}
        try:
            ticks = ticks_health(now=clock.now())
        except DatabaseError as error:
            state["db"] = f"does not answer ({type(error).__name__})"
            ticks = dict.fromkeys(TICKS, "unknown: the database does not answer")
        return Response({**state, **ticks}, status=200 if state["db"] == "ok" else 503)


def login_link_view(request: HttpRequest, token: str) -> HttpResponse:
    """GET /login/<token>: a session for the link's user, once."""
    if services.use_login_link(request, token, now=clock.now()):
        response: HttpResponse = HttpResponseRedirect("/")
    else:
        response = HttpResponse(
            "This login link was used or is too old. Make another: python3 manage.py login-link",
            status=410,
            content_type="text/plain; charset=utf-8",
        )
    response["Referrer-Policy"] = "no-referrer"
    response["Cache-Control"] = "no-store"
    return response
