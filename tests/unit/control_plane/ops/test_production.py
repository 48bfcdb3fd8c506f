"""Settings of a production installation: what is unsafe does not start."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import check_password
from django.core.management import CommandError, call_command

from control_plane.accounts.models import Membership, User
from control_plane.config import InvalidSetting, UnsafeSetting, database_settings, load_config
from control_plane.ops import dependency_checks
from control_plane.ops.management.commands import init_production

GOOD = {
    "OOLONG_ENV": "production",
    "SECRET_KEY": "3f1c9a7be2d84650a9c1f7e3b8d2460f5a7c9e1b",
    "DATABASE_URL": "postgresql://oolong:pw@db:5432/oolong?sslmode=verify-full",
    "REDIS_URL": "redis://:pw@valkey:6379/0",
    "ALLOWED_HOSTS": "oolong.example.org",
    "OOLONG_PUBLIC_URL": "https://oolong.example.org",
    "OOLONG_DATA_DIR": "/var/lib/oolong/store",
}


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that stands still for a while is not away."""
    monkeypatch.setattr(dependency_checks, "SECONDS", 60)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in (
        *GOOD,
        "OOLONG_DEBUG",
        "STORAGE_URL",
        "OOLONG_SECRETS_KEYS",
        "OOLONG_METRICS_TOKEN",
        "OOLONG_HUB_URL",
        "FORWARDED_ALLOW_IPS",
        "OOLONG_TRUSTED_PROXIES",
    ):
        monkeypatch.delenv(name, raising=False)

    def set_(**changes: str) -> None:
        for name, value in {**GOOD, **changes}.items():
            monkeypatch.setenv(name, value)

    return set_


def test_good_settings_are_taken(environ: Any) -> None:
    environ()
    found = load_config()
    assert found.production and found.secure_cookies
    assert database_settings(found.database_url)["OPTIONS"]["sslmode"] == "verify-full"  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OOLONG_DEBUG", "1", "OOLONG_DEBUG=1 shows code"),
        ("FORWARDED_ALLOW_IPS", "*", "name your proxies in OOLONG_TRUSTED_PROXIES"),
        ("OOLONG_TRUSTED_PROXIES", "10.0.0.1,0.0.0.0/0", "has every address"),
        ("SECRET_KEY", "short", "SECRET_KEY is too weak"),
        ("SECRET_KEY", "a" * 64, "SECRET_KEY is too weak"),
        ("ALLOWED_HOSTS", "", "ALLOWED_HOSTS is not set"),
        ("ALLOWED_HOSTS", "oolong.example.org,*", "lets anybody put words"),
        ("OOLONG_PUBLIC_URL", "http://oolong.example.org", "would travel readable"),
        ("OOLONG_PUBLIC_URL", "", "would travel readable"),
        ("OOLONG_DATA_DIR", "", "OOLONG_DATA_DIR is not set"),
        ("REDIS_URL", "", "REDIS_URL is not set"),
        ("OOLONG_HUB_URL", "http://hub.lan", "no node asks a hub over plain HTTP"),
    ],
)
def test_an_unsafe_setting_does_not_start(environ: Any, name: str, value: str, says: str) -> None:
    environ(**{name: value})
    with pytest.raises(UnsafeSetting, match=says) as refusal:
        load_config()
    assert GOOD["SECRET_KEY"] not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OOLONG_ENV", "prod", "production or development"),
        ("OOLONG_DEBUG", "true", "1, or 0, or not set"),
        ("OOLONG_RATE_USER", "many", "a whole number, 0 or more"),
        ("OOLONG_TELEMETRY_DAYS", "-1", "a whole number, 0 or more"),
        ("OOLONG_PROJECT_CHECKS", "0", "a whole number, 1 or more"),
        ("OOLONG_HEARTBEAT_SECONDS", "often", "seconds, more than 0, such as 10"),
        ("OOLONG_NODE_LEASE_SECONDS", "nan", "seconds, more than 0, such as 45"),
        ("OOLONG_WEBHOOK_NETWORKS", "10.0.0.0/99", "is no network, such as 10.1.0.0/16"),
        ("OOLONG_REWARD_ORIGINS", "judge.example.com", "is no origin: give http:// or https://"),
        ("OOLONG_REWARD_ORIGINS", "https://judge.example.com/v1", "without a path"),
        ("OOLONG_OIDC_ISSUER", "http://id.example.org", "asked over https only"),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_named_with_what_it_can(
    environ: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    environ()
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSetting, match=says) as refusal:
        load_config()
    assert name in str(refusal.value) and value in str(refusal.value)


def test_origins_of_rewards_are_the_same_in_any_spelling(environ: Any) -> None:
    environ(OOLONG_REWARD_ORIGINS="https://Judge.example.com:443/, http://10.1.0.7:8000,http://[::1]:80")
    assert load_config().reward_origins == [
        "https://judge.example.com",
        "http://10.1.0.7:8000",
        "http://[::1]",
    ]


def test_a_laptop_may_do_without(environ: Any) -> None:
    environ(OOLONG_ENV="", ALLOWED_HOSTS="", OOLONG_PUBLIC_URL="http://127.0.0.1:8400", SECRET_KEY="short")
    assert not load_config().production


def test_production_on_this_machine_alone_needs_no_tls(environ: Any) -> None:
    environ(OOLONG_PUBLIC_URL="http://127.0.0.1:8400")
    assert not load_config().secure_cookies


def test_secrets_may_lie_in_files(environ: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    environ(DATABASE_URL="")
    (tmp_path / "url").write_text(GOOD["DATABASE_URL"] + "\n")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    assert load_config().database_url == GOOD["DATABASE_URL"]
    monkeypatch.setenv("DATABASE_URL", "postgresql://other")
    with pytest.raises(InvalidSetting, match="both DATABASE_URL and DATABASE_URL_FILE are set"):
        load_config()
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "none"))
    with pytest.raises(InvalidSetting, match="cannot be read: No such file"):
        load_config()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://oolong:hunter2@db/oolong", "begins with 'mysql'; only postgresql://"),
        ("postgresql://oolong:hunter2@db/oolong?options=-c", "has the option 'options'"),
        ("postgresql://oolong:hunter2@db:x/oolong", "no number from 0 to 65535"),
    ],
)
def test_a_database_url_that_cannot_be_used_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says) as refusal:
        database_settings(url)
    assert "hunter2" not in str(refusal.value)


def do(*words: str) -> str:
    said = io.StringIO()
    call_command("init_production", *words, stdout=said)
    return said.getvalue()


def test_init_makes_the_admin_once_without_a_password(db: None, valkey_url: str) -> None:
    said = do()
    admin = User.objects.get(username="admin")
    assert not admin.has_usable_password() and admin.is_staff
    assert "This link logs in once, within 15 minutes:\n        http://testserver/login/" in said
    assert Membership.objects.filter(user=admin, role="admin").exists()
    again = do()
    assert "the user 'admin' was there and is unchanged" in again and "/login/" not in again
    assert User.objects.count() == 1


def test_init_takes_a_password_from_a_terminal_only(
    db: None, valkey_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_production.sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(CommandError, match="asks on a terminal, and there is none"):
        do("--password")
    monkeypatch.setattr(init_production.sys.stdin, "isatty", lambda: True, raising=False)
    answers = iter(
        ["short", "long enough for us", "another one entirely", "long enough for us", "long enough for us"]
    )
    monkeypatch.setattr(init_production.getpass, "getpass", lambda prompt: next(answers))
    with pytest.raises(CommandError, match="at least 12 characters"):
        do("--password")
    with pytest.raises(CommandError, match="the two are not the same; nothing was made"):
        do("--password")
    assert not User.objects.exists()
    do("--password")
    assert check_password("long enough for us", User.objects.get().password)


def test_init_says_plainly_which_service_cannot_be_used(db: None, valkey_url: str, settings: Any) -> None:
    import dataclasses

    settings.ENVIRONMENT = dataclasses.replace(
        settings.ENVIRONMENT, redis_url="redis://:hunter2@127.0.0.1:1/0", storage_url="ftp://example.org"
    )
    said = io.StringIO()
    with pytest.raises(CommandError, match=r"2 service\(s\) cannot be used; nothing was changed"):
        call_command("init_production", stdout=said)
    text = said.getvalue()
    assert "ok    PostgreSQL: postgresql://…@127.0.0.1" in text
    assert "FAULT Valkey: redis://…@127.0.0.1:1/0 does not answer: " in text
    assert "FAULT storage: ftp://example.org: STORAGE_URL='ftp://example.org'" in text
    assert "hunter2" not in text
    assert not User.objects.exists()
