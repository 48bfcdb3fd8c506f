"""Check database, broker and storage, and describe each for the operator, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import redis
from django.conf import settings

from control_plane.assets.storage import store
from control_plane.assets.storage.address import BadAddress
from control_plane.core.infra.database import connect_parameters
from control_plane.ops.redacted_settings import without_credentials

SECONDS = 5
OLDEST_POSTGRES = 15


@dataclass(frozen=True)
class DependencyCheck:
    service: str
    ok: bool
    message: str


def check_dependencies() -> Iterator[DependencyCheck]:
    yield DependencyCheck("PostgreSQL", *_postgres())
    yield DependencyCheck("Valkey", *_broker())
    yield DependencyCheck("storage", *_storage())


def _postgres() -> tuple[bool, str]:
    environment = settings.ENVIRONMENT
    where = without_credentials(environment.database_url)
    try:
        with psycopg.connect(**connect_parameters(), connect_timeout=SECONDS) as connection:
            row = connection.execute(
                "SELECT current_setting('server_version_num')::int / 10000, "
                "has_database_privilege(current_database(), 'CREATE'), has_schema_privilege('public', 'CREATE')"
            ).fetchone()
    except psycopg.OperationalError as error:
        return False, f"{where} does not let us in: {_without_secrets(str(error))}"
    assert row is not None
    version, database, schema = row
    if version < OLDEST_POSTGRES:
        return False, f"{where} is PostgreSQL {version}; {OLDEST_POSTGRES} or newer is needed"
    if not (database and schema):
        return False, f"{where}: the user may not make tables; GRANT CREATE ON SCHEMA public TO it"
    return True, f"{where}, version {version}"


def _broker() -> tuple[bool, str]:
    where = without_credentials(settings.ENVIRONMENT.redis_url)
    try:
        broker = redis.Redis.from_url(
            settings.ENVIRONMENT.redis_url, socket_timeout=SECONDS, socket_connect_timeout=SECONDS
        )
        try:
            broker.ping()
        finally:
            broker.close()
    except (redis.RedisError, ValueError) as error:
        return False, f"{where} does not answer: {_without_secrets(str(error))}"
    return True, where


def _storage() -> tuple[bool, str]:
    where = without_credentials(settings.ENVIRONMENT.storage_url) or str(settings.ENVIRONMENT.data_dir)
    try:
        store.scratch_folder()
        store.check()
    except (store.StorageUnavailable, BadAddress, OSError) as error:
        return False, f"{where}: {_without_secrets(str(error))}"
    return True, where


def _without_secrets(text: str) -> str:
    environment = settings.ENVIRONMENT
    for url in (environment.database_url, environment.redis_url):
        text = text.replace(url, without_credentials(url))
    password = settings.DATABASES["default"].get("PASSWORD")
    if password:
        text = text.replace(str(password), "…")
    return " ".join(text.split())
