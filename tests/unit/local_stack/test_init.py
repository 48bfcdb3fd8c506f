"""The settings file of a production installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_stack.errors import StackError
from local_stack.init import GENERATED, advice, read_settings, resolve_settings, write_settings

GIVEN = {
    "OOLONG_PUBLIC_URL": "https://oolong.example.org",
    "DATABASE_URL": "postgresql://oolong:p'w $x@db/oolong",
    "REDIS_URL": "redis://:pw@valkey/0",
}


def test_a_new_file_has_secrets_of_its_own_and_a_host(tmp_path: Path) -> None:
    first, second = resolve_settings({}, GIVEN, ask=None), resolve_settings({}, GIVEN, ask=None)
    assert all(len(first[name]) == 64 and first[name] != second[name] for name in GENERATED)
    assert len({first[name] for name in GENERATED}) == len(GENERATED)
    assert first["ALLOWED_HOSTS"] == "oolong.example.org,127.0.0.1,localhost"
    assert first["OOLONG_ENV"] == "production"
    write_settings(tmp_path / "deep" / "oolong.env", first)
    assert (tmp_path / "deep" / "oolong.env").stat().st_mode & 0o777 == 0o600
    assert read_settings(tmp_path / "deep" / "oolong.env") == first, "quotes and dollars survive"


def test_a_second_time_changes_nothing() -> None:
    first = resolve_settings({}, GIVEN, ask=None)
    assert resolve_settings(first, GIVEN, ask=None) == first
    assert resolve_settings(first, {}, ask=None) == first


def test_a_secret_that_the_operator_made_stays() -> None:
    assert resolve_settings({"SECRET_KEY": "mine"}, GIVEN, ask=None)["SECRET_KEY"] == "mine"


def test_a_flag_that_contradicts_the_file_is_an_error() -> None:
    first = resolve_settings({}, GIVEN, ask=None)
    with pytest.raises(
        StackError, match="another DATABASE_URL than --database-url: init never overwrites"
    ) as error:
        resolve_settings(first, {"DATABASE_URL": "postgresql://new:hunter2@db/x"}, ask=None)
    assert "hunter2" not in str(error.value)


def test_what_is_missing_is_named_with_an_example() -> None:
    with pytest.raises(StackError, match="--database-url is missing, say --database-url postgresql://"):
        resolve_settings({}, {"OOLONG_PUBLIC_URL": "https://oolong.example.org"}, ask=None)
    with pytest.raises(StackError, match="is no address; say https://"):
        resolve_settings({}, {**GIVEN, "OOLONG_PUBLIC_URL": "oolong.example.org"}, ask=None)


def test_at_a_terminal_it_asks_for_what_is_missing() -> None:
    asked: list[str] = []

    def ask(question: str, default: str) -> str:
        asked.append(question.partition(",")[0])
        return default or ("postgresql://x@db/x" if question.startswith("PostgreSQL") else "")

    found = resolve_settings({}, {name: GIVEN[name] for name in ("OOLONG_PUBLIC_URL", "REDIS_URL")}, ask=ask)
    assert asked == ["PostgreSQL", "Folder for uploads", "Where blobs are kept; empty: in that folder"]
    assert found["DATABASE_URL"] == "postgresql://x@db/x" and found["STORAGE_URL"] == ""


def test_the_advice_names_the_host_and_no_secret() -> None:
    values = resolve_settings({}, GIVEN, ask=None)
    text = advice(values, Path("/etc/oolong/oolong.env"))
    assert "oolong.example.org {\n      reverse_proxy 127.0.0.1:8400" in text
    assert not any(values[name] in text for name in GENERATED)
