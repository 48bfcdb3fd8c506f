"""Every route × every kind of caller: who comes in. What each must find is in routes.py, one line a route."""

from __future__ import annotations

from control_plane.accounts.tokens.scopes import SCOPES
from control_plane.routing import websocket_urlpatterns
from control_plane.telemetry.stream import topics
from tests.unit.control_plane.access.doors import REACHED, all_routes, call, knock
from tests.unit.control_plane.access.objects import DEAD, World
from tests.unit.control_plane.access.routes import (
    KNOWN,
    LOWEST_ROLE,
    NODE,
    OPEN,
    ROLES,
    ROUTES,
    SOCKETS,
    STALE,
    TOPICS,
)

ALL = list(all_routes())
VIEWS = [
    route for route in ALL if route.is_view and route.name in ROUTES
]  # the others are in test_streams.py
CLOSED = [route for route in VIEWS if ROUTES[route.name] != OPEN]
USERS_OWN = [route for route in CLOSED if ROUTES[route.name] != NODE]


def test_every_endpoint_and_topic_and_scope_is_in_the_table() -> None:
    assert {route.name for route in ALL} == set(ROUTES)
    assert {str(pattern.pattern) for pattern in websocket_urlpatterns} == set(SOCKETS)
    assert dict(topics.TOPICS) == TOPICS
    assert set(LOWEST_ROLE) == set(SCOPES)
    assert {name for name, need in ROUTES.items() if need == NODE} == set(STALE)


def test_nobody_comes_in_without_a_credential(world: World) -> None:
    for route in CLOSED:
        reply = call(route, "", {})
        assert (reply.status_code, reply.json()["code"]) == (401, "not_authenticated"), route.name


def test_a_dead_or_unfit_credential_opens_no_endpoint(quick: World) -> None:
    for route in CLOSED:
        unfit = "alice" if ROUTES[route.name] == NODE else "node"
        for name in (*DEAD, unfit):
            assert knock(route, bearer=quick.tokens[name]) == 401, (route.name, name)


def test_a_role_opens_exactly_its_doors_to_tokens_and_to_browsers(quick: World) -> None:
    for route in USERS_OWN:
        for role in ROLES:
            expected = answer(ROUTES[route.name], scopes_of(role))
            user, token = quick.users[role], quick.tokens[role]
            assert knock(route, bearer=token) == expected, (route.name, role)
            assert knock(route, session_of=user) == expected, (route.name, role, "session")
            unprotected = expected if route.method == "GET" else 403
            assert knock(route, session_of=user, csrf=False) == unprotected, (route.name, role, "no CSRF")


def test_a_pool_admin_opens_the_doors_of_their_role_and_of_pools(quick: World) -> None:
    for route in USERS_OWN:
        expected = answer(ROUTES[route.name], scopes_of("viewer") | {"pool:admin"})
        for name in ("pool admin", "pool admin of another pool"):
            assert knock(route, bearer=quick.tokens[name]) == expected, (route.name, name)
            assert knock(route, session_of=quick.users[name]) == expected, (route.name, name, "session")


def test_a_service_account_has_its_role_and_no_more(quick: World) -> None:
    for route in USERS_OWN:
        for role in ROLES[:4]:
            token = quick.tokens[f"{role} service account"]
            assert knock(route, bearer=token) == answer(ROUTES[route.name], scopes_of(role)), (
                route.name,
                role,
            )


def test_a_token_opens_exactly_the_doors_of_its_scopes(quick: World) -> None:
    for route in USERS_OWN:
        for scope in SCOPES:
            expected = answer(ROUTES[route.name], {scope})
            assert knock(route, bearer=quick.tokens[f"only {scope}"]) == expected, (route.name, scope)


def test_open_doors_are_open_and_nodes_have_their_own(quick: World) -> None:
    for route in VIEWS:
        if ROUTES[route.name] == OPEN:
            assert knock(route) == REACHED, route.name
        if ROUTES[route.name] == NODE:
            assert knock(route, bearer=quick.tokens["node"]) == REACHED, route.name
            assert knock(route, session_of=quick.users["alice"]) == 401, route.name


def answer(need: str, scopes: set[str]) -> int:
    return REACHED if need == KNOWN or need in scopes else 403


def scopes_of(role: str) -> set[str]:
    return {scope for scope in SCOPES if ROLES.index(LOWEST_ROLE[scope]) <= ROLES.index(role)}
