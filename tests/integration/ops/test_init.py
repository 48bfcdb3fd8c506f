"""`manage.py init` as an operator types it, and the commands after it, against real services."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from local_stack.init import read_settings

ROOT = Path(__file__).resolve().parents[3]
DATABASE = "made_by_init"


@pytest.fixture
def database(postgres_url: str) -> str:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {DATABASE}")
    return f"{postgres_url.rpartition('/')[0]}/{DATABASE}"


def manage(*words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        [sys.executable, "manage.py", *words], cwd=ROOT, env={**kept, **(environ or {})},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip


def test_an_installation_is_made_backed_up_and_examined(
    database: str, valkey_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "oolong.env"
    init = [
        "init", "--no-input", "--env-file", str(file), "--public-url", "https://oolong.example.org",
        "--database-url", database, "--redis-url", valkey_url, "--data-dir", str(tmp_path / "store"),
    ]  # fmt: skip
    made = manage(*init)
    assert made.returncode == 0, made.stdout + made.stderr
    assert (
        "https://oolong.example.org/login/" in made.stdout and "reverse_proxy 127.0.0.1:8400" in made.stdout
    )
    settings = read_settings(file)
    assert settings["SECRET_KEY"] not in made.stdout and file.stat().st_mode & 0o777 == 0o600
    again = manage(*init)
    assert again.returncode == 0 and "no changes" in again.stdout and "/login/" not in again.stdout
    assert read_settings(file) == settings
    backup = manage("backup", str(tmp_path / "backup"), environ=settings)
    assert backup.returncode == 0, backup.stdout + backup.stderr
    verified = manage("verify", "--backup", str(tmp_path / "backup"), environ=settings)
    assert verified.returncode == 0 and "All is well" in verified.stdout
    doctor = manage("doctor", "--out", str(tmp_path / "bundle.zip"), environ=settings)
    assert doctor.returncode == 1 and "no tick has ever run" in doctor.stdout


def test_a_service_that_is_away_leaves_nothing_made(database: str, tmp_path: Path) -> None:
    refused = manage(
        "init", "--no-input", "--env-file", str(tmp_path / "oolong.env"), "--public-url", "https://oolong.example.org",
        "--database-url", database, "--redis-url", "redis://:hunter2@127.0.0.1:1/0",
        "--data-dir", str(tmp_path / "store"),
    )  # fmt: skip
    assert refused.returncode == 1
    assert "FAULT Valkey: redis://…@127.0.0.1:1/0 does not answer" in refused.stdout
    assert "hunter2" not in refused.stdout + refused.stderr
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT to_regclass('django_migrations')").fetchone() == (None,)


def test_an_unsafe_setting_stops_every_command(database: str, valkey_url: str, tmp_path: Path) -> None:
    environ = {
        "OOLONG_ENV": "production", "SECRET_KEY": "short", "DATABASE_URL": database, "REDIS_URL": valkey_url,
        "OOLONG_PUBLIC_URL": "https://oolong.example.org", "ALLOWED_HOSTS": "oolong.example.org",
        "OOLONG_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "control_plane.settings",
    }  # fmt: skip
    refused = manage("migrate", environ=environ)
    assert refused.returncode != 0
    assert "SECRET_KEY is too weak" in refused.stderr
