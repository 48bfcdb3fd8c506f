"""Databases of a server of the tests, by name."""

from __future__ import annotations

import psycopg
from psycopg.sql import SQL, Identifier

from tests.support.prepared import TABLES

EMPTY = "template1"


def new_database(postgres_url: str, name: str) -> str:
    """The URL of a database of that name, made again; with the tables, where the server has them to copy.

    A server that was named by OOLONG_TEST_DATABASE_URL has none: there whoever comes first migrates.
    """
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))
        found = server.execute("SELECT 1 FROM pg_database WHERE datname = %s", [TABLES]).fetchone()
        copied = SQL("CREATE DATABASE {} TEMPLATE {}")
        server.execute(copied.format(Identifier(name), Identifier(TABLES if found else EMPTY)))
    return f"{postgres_url.rpartition('/')[0]}/{name}"
