from __future__ import annotations

from typing import Any

from django.db import connection


def connect_parameters() -> dict[str, Any]:
    """How psycopg reaches Django's database by a connection of its own, outside the pool."""
    settings = connection.settings_dict
    parameters: dict[str, Any] = {
        "dbname": settings["NAME"],
        "user": settings["USER"],
        "password": settings["PASSWORD"],
        "host": settings["HOST"],
        "port": settings["PORT"],
    }
    options = settings.get("OPTIONS", {})
    tls = ("sslmode", "sslrootcert", "sslcert", "sslkey")
    parameters |= {name: options[name] for name in tls if name in options}
    return {name: value for name, value in parameters.items() if value not in ("", None)}


def give_back_connection() -> None:
    """To the pool, before something slow that needs no database: a stranger's answer, a hash of gigabytes.

    The next query takes another. Within a transaction it stays, for it is the transaction.
    """
    if not connection.in_atomic_block:
        connection.close()
