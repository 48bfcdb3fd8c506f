"""`manage.py init`: write the settings file of a production installation and initialize its database.

Idempotent. Values in the file are never changed: existing secrets stay, and a flag that contradicts the file is an
error.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from local_stack.configuration import child_environment
from local_stack.errors import StackError
from local_stack.files import write_atomically
from local_stack.paths import Paths

Prompt = Callable[[str, str], str]  # question, default -> answer


@dataclass(frozen=True)
class Setting:
    """One variable of the settings file with its prompt and an example."""

    name: str
    flag: str
    question: str
    example: str
    default: str = ""
    required: bool = True


SETTINGS = (
    Setting(
        "OOLONG_PUBLIC_URL", "--public-url", "Address under which browsers and nodes reach this installation",
        "https://oolong.example.org",
    ),
    Setting("DATABASE_URL", "--database-url", "PostgreSQL", "postgresql://oolong:password@127.0.0.1:5432/oolong"),
    Setting("REDIS_URL", "--redis-url", "Valkey or Redis", "redis://:password@127.0.0.1:6379/0"),
    Setting("OOLONG_DATA_DIR", "--data-dir", "Folder for uploads", "/var/lib/oolong/store", "/var/lib/oolong/store"),
    Setting(
        "STORAGE_URL", "--storage-url", "Blob storage; empty: in that folder",
        "s3://bucket/prefix?endpoint=https://s3.example.org", required=False,
    ),
)  # fmt: skip
GENERATED = ("SECRET_KEY", "OOLONG_SECRETS_KEYS", "OOLONG_METRICS_TOKEN")


def main(paths: Paths, rest: list[str]) -> int:
    options = parser().parse_args(rest)
    interactive = sys.stdin.isatty() and not options.no_input
    given = {setting.name: getattr(options, _attribute(setting)) for setting in SETTINGS}
    file: Path = options.env_file
    known = read_settings(file)
    values = resolve_settings(
        known, {name: value for name, value in given.items() if value}, ask=_prompt if interactive else None
    )
    if values != known:
        write_settings(file, values)
        made = [name for name in GENERATED if name not in known]
        print(f"{file}: {'created' if not known else 'completed'}, readable by its owner only", end="")
        print(f"; new secrets: {', '.join(made)}" if made else "")
    else:
        print(f"{file}: no changes")
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
        **child_environment(paths, values),
        "OOLONG_LOG_FORMAT": "text",
    }
    words = ["init_production", "--admin", options.admin]
    words += ["--password"] if options.password else []
    words += ["--check-only"] if options.check_only else []
    status = subprocess.run(
        [str(paths.venv_python), "-m", "django", *words], env=environment, cwd=paths.root
    ).returncode
    if status == 0 and not options.check_only:
        print(next_steps(values, file))
    return status


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="manage.py init", description=__doc__)
    found.add_argument(
        "--env-file", type=Path, default=Path("/etc/oolong/oolong.env"), help="default: %(default)s"
    )
    for setting in SETTINGS:
        found.add_argument(
            setting.flag, dest=_attribute(setting), default="", help=f"example: {setting.example}"
        )
    found.add_argument("--admin", default="admin", help="name of the first user (default: admin)")
    found.add_argument(
        "--password",
        action="store_true",
        help="ask for the admin's password; otherwise print a single-use login link",
    )
    found.add_argument(
        "--check-only", action="store_true", help="check settings and services without changes"
    )
    found.add_argument(
        "--no-input", action="store_true", help="do not prompt: flags or the file provide each value"
    )
    return found


def resolve_settings(
    known: Mapping[str, str], given: Mapping[str, str], *, ask: Prompt | None
) -> dict[str, str]:
    """Resolve the values of the file. Raises StackError for a missing value or one that contradicts the file."""
    values = dict(known)
    for setting in SETTINGS:
        if setting.name in known and given.get(setting.name, known[setting.name]) != known[setting.name]:
            raise StackError(
                f"{setting.flag} differs from {setting.name} in the file: init never overwrites a value. Edit "
                "the file to change it."
            )
        if setting.name in known:
            continue
        value = given.get(setting.name, "")
        if not value and ask is not None:
            value = ask(f"{setting.question}, for example {setting.example}", setting.default)
        value = value or setting.default
        if not value and setting.required:
            raise StackError(
                f"{setting.flag} is missing, for example {setting.flag} {shlex.quote(setting.example)}"
            )
        values[setting.name] = value
    host = urlsplit(values["OOLONG_PUBLIC_URL"]).hostname
    if not host:
        raise StackError(
            f"--public-url {values['OOLONG_PUBLIC_URL']!r} is not a URL; for example https://oolong.example.org"
        )
    values.setdefault("OOLONG_ENV", "production")
    values.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    values.setdefault("ALLOWED_HOSTS", ",".join(dict.fromkeys([host, "127.0.0.1", "localhost"])))
    values.setdefault("OOLONG_LOG_FORMAT", "json")
    for name in GENERATED:
        values.setdefault(name, secrets.token_hex(32))
    return values


def read_settings(file: Path) -> dict[str, str]:
    """Read NAME=value lines, as systemd's EnvironmentFile and shells do; empty if the file is missing."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return {}
    values = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith("#"):
            values[name] = "".join(shlex.split(value))
    return values


def write_settings(file: Path, values: Mapping[str, str]) -> None:
    lines = [
        "# Settings of Oolong, written by `manage.py init`. Contains secrets: SECRET_KEY signs sessions and links,"
    ]
    lines += ["# OOLONG_SECRETS_KEYS decrypts project secrets. Keep a copy separate from the backups."]
    lines += [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, "\n".join(lines) + "\n", mode=0o600)


def next_steps(values: Mapping[str, str], file: Path) -> str:
    host = urlsplit(values["OOLONG_PUBLIC_URL"]).hostname or ""
    return f"""
Next:
  Start the processes with this file, with systemd or manually:
    set -a; . {shlex.quote(str(file))}; set +a
    web     python -m uvicorn control_plane.asgi:application --host 127.0.0.1 --port 8400 --lifespan off
    worker  python -m celery --app control_plane worker --queues celery --concurrency 2
    webhooks  python -m celery --app control_plane worker --queues webhooks --pool solo --hostname webhooks@%h
    beat    python -m celery --app control_plane beat
  TLS: browsers and nodes must use https. With Caddy, which also obtains the certificate:
    {host} {{
      reverse_proxy 127.0.0.1:8400
    }}
  An agent accepts plain HTTP only to its own machine.
  See docs/how-to/operate.md for containers, multiple processes, metrics and backups."""


def _attribute(setting: Setting) -> str:
    return setting.flag.lstrip("-").replace("-", "_")


def _prompt(question: str, default: str) -> str:
    answer = input(f"{question}{f' [{default}]' if default else ''}: ").strip()
    return answer or default
