from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
import pytest
from django.db import connection

from control_plane.core.infra.database import connect_parameters


@contextmanager
def _other_database() -> Iterator[str]:
    """Django's default connection goes to a new, empty database."""
    name = f"other_{secrets.token_hex(4)}"
    before = connection.settings_dict["NAME"]
    known = connect_parameters()

    def switch(to: str) -> None:
        connection.close()
        connection.close_pool()
        connection.settings_dict["NAME"] = to

    with psycopg.connect(**known, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        switch(name)
        try:
            yield name
        finally:
            switch(before)
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def other_database() -> Callable[[], AbstractContextManager[str]]:
    return _other_database
