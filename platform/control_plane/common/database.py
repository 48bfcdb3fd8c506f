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
