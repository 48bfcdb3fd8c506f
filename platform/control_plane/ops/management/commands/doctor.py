from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.infra import clock
from control_plane.ops.doctor.collect import collect
from control_plane.ops.doctor.findings import findings
from control_plane.ops.doctor.redact import known_secrets, redact

LOGS = Path(settings.BASE_DIR) / "var" / "logs"


class Command(BaseCommand):
    help = "Look for faults and say what to do; exits 1 at one. --out writes a bundle without secrets for who helps."
    requires_system_checks = []
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--out", type=Path, help="write a zip file with what was seen")
        parser.add_argument(
            "--logs", type=Path, default=LOGS, help="folder with *.log files (default: var/logs)"
        )
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, out: Path | None, logs: Path, json: bool, **options: Any) -> None:
        collected = collect(now=clock.now(), logs=logs if out else None)
        found = [vars(advice) for advice in findings(collected)]
        if out is not None:
            _write(out, {**collected, "findings": found})
        if json:
            self.stdout.write(_safe(found))
        else:
            for advice in found:
                self.stdout.write(_plain(f"{advice['level']:8} {advice['what']}\n         → {advice['do']}"))
            if not found:
                self.stdout.write("Nothing looks wrong.")
            if out is not None:
                self.stdout.write(f"{out} holds what was seen, without secrets; read it before you send it.")
        if any(advice["level"] == "fault" for advice in found):
            raise CommandError("there is at least one fault", returncode=1)


def _write(out: Path, collected: dict[str, Any]) -> None:
    logs = collected.pop("logs")
    try:
        descriptor = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"--out {out}: {error.strerror}; name a file that is not there yet") from error
    with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, value in collected.items():
            bundle.writestr(f"{name}.json", _safe(value))
        for name, lines in logs.items():
            bundle.writestr(f"logs/{name}", _plain("\n".join(lines)))


def _safe(value: Any) -> str:
    """Redacted value by value, so that it stays JSON."""
    return json.dumps(_walk(value, known_secrets()), indent=1, default=str, ensure_ascii=False)


def _walk(value: Any, known: set[str]) -> Any:
    if isinstance(value, dict):
        return {redact(str(name), known): _walk(item, known) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, known) for item in value]
    return redact(value, known) if isinstance(value, str) else value


def _plain(text: str) -> str:
    return redact(text, known_secrets())
