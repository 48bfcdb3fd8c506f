"""The settings file of a production installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_stack.errors import StackError
from local_stack.init import GENERATED, next_steps, read_settings, resolve_settings, write_settings

GIVEN = {
    "OOLONG_PUBLIC_URL": "https://oolong.example.org",
    "DATABASE_URL": "postgresql://oolong:p'w $x@db/oolong",
    "REDIS_URL": "redis://:pw@valkey/0",
}


def test_new_file_gets_generated_secrets_and_allowed_hosts(tmp_path: Path) -> None:
    first, second = resolve_settings({}, GIVEN, ask=None), resolve_settings({}, GIVEN, ask=None)
    assert all(len(first[name]) == 64 and first[name] != second[name] for name in GENERATED)
    assert len({first[name] for name in GENERATED}) == len(GENERATED)
    assert first["ALLOWED_HOSTS"] == "oolong.example.org,127.0.0.1,localhost"
    assert first["OOLONG_ENV"] == "production"
    write_settings(tmp_path / "deep" / "oolong.env", first)
    assert (tmp_path / "deep" / "oolong.env").stat().st_mode & 0o777 == 0o600
    assert read_settings(tmp_path / "deep" / "oolong.env") == first, "quotes and dollars survive"


def test_second_init_changes_nothing() -> None:
    first = resolve_settings({}, GIVEN, ask=None)
    assert resolve_settings(first, GIVEN, ask=None) == first
    assert resolve_settings(first, {}, ask=None) == first


def test_operator_secret_is_preserved() -> None:
    assert resolve_settings({"SECRET_KEY": "mine"}, GIVEN, ask=None)["SECRET_KEY"] == "mine"


def test_flag_that_contradicts_the_file_is_rejected() -> None:
    first = resolve_settings({}, GIVEN, ask=None)
    with pytest.raises(
        StackError, match="--database-url differs from DATABASE_URL in the file: init never overwrites"
    ) as error:
        resolve_settings(first, {"DATABASE_URL": "postgresql://new:hunter2@db/x"}, ask=None)
    assert "hunter2" not in str(error.value)


def test_missing_value_error_names_flag_and_example() -> None:
    with pytest.raises(
        StackError, match="--database-url is missing, for example --database-url postgresql://"
    ):
        resolve_settings({}, {"OOLONG_PUBLIC_URL": "https://oolong.example.org"}, ask=None)
    with pytest.raises(StackError, match="is not a URL; for example https://"):
        resolve_settings({}, {**GIVEN, "OOLONG_PUBLIC_URL": "oolong.example.org"}, ask=None)


def test_missing_values_are_prompted_for() -> None:
    asked: list[str] = []

    def ask(question: str, default: str) -> str:
        asked.append(question.partition(",")[0])
        return default or ("postgresql://x@db/x" if question.startswith("PostgreSQL") else "")

    found = resolve_settings({}, {name: GIVEN[name] for name in ("OOLONG_PUBLIC_URL", "REDIS_URL")}, ask=ask)
    assert asked == ["PostgreSQL", "Folder for uploads", "Blob storage; empty: in that folder"]
    assert found["DATABASE_URL"] == "postgresql://x@db/x" and found["STORAGE_URL"] == ""


def test_next_steps_name_the_host_and_no_secret() -> None:
    values = resolve_settings({}, GIVEN, ask=None)
    text = next_steps(values, Path("/etc/oolong/oolong.env"))
    assert "oolong.example.org {\n      reverse_proxy 127.0.0.1:8400" in text
    assert not any(values[name] in text for name in GENERATED)
