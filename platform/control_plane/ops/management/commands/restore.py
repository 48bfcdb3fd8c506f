from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser

from control_plane.ops.backup.restore import restore_backup


class Command(BaseCommand):
    help = "Restore a backup into an empty database and the store, migrate, and verify."
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        manifest = restore_backup(folder, say=self.stdout.write)
        self.stdout.write(f"Restored the backup of {manifest.made_at}, version {manifest.version}.")
        call_command("verify", stdout=self.stdout, stderr=self.stderr)
