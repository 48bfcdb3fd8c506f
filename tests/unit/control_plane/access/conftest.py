"""A world that is built once for a module; what a test does to it is undone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from django.db import transaction

from control_plane.accounts import selectors
from control_plane.accounts.identity import services
from control_plane.core.infra import clock
from control_plane.fleet import authentication as fleet_authentication
from tests.unit.control_plane.access.objects import World, build_world


@pytest.fixture(scope="module", autouse=True)
def _own_store(store_of_module: None) -> None:
    """Of the module, as its world is."""


@pytest.fixture(scope="module")
def built(_own_store: None, django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    with django_db_blocker.unblock(), transaction.atomic():
        yield build_world()
        transaction.set_rollback(True)


@pytest.fixture
def world(built: World, db: None) -> World:
    """`db` comes second: its transaction is inside the one that holds the world."""
    return built


@pytest.fixture
def quick(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Each credential is looked up, and its use noted, once, by the real ones: thousands of knocks need no more."""
    caller_of_token = selectors.caller_of_token
    of_token = cache(lambda text: caller_of_token(text, now=clock.now()))
    monkeypatch.setattr(selectors, "caller_of_token", lambda text, *, now: of_token(text))
    monkeypatch.setattr(selectors, "caller_of_user", cache(selectors.caller_of_user))
    touch = services.touch_last_used
    noted = cache(lambda token: touch(token, now=clock.now()))
    monkeypatch.setattr(services, "touch_last_used", lambda token, *, now: noted(token))
    of_credential = cache(fleet_authentication.node_of_credential)
    monkeypatch.setattr(fleet_authentication, "node_of_credential", of_credential)
    return world
