"""A world of objects that requests can name, and a database that stays open between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, transaction

from tests.unit.control_plane.access.objects import World, build_world


@pytest.fixture
def world(transactional_db: None, tmp_path: Path, settings: Any) -> Iterator[World]:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=tmp_path)
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    with transaction.atomic():
        built = build_world()
    # Afterward: each request of Django's test client, which builds the world, connects these again.
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield built
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)
