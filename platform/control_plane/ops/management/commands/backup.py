from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from control_plane.ops.backup.create import create_backup


class Command(BaseCommand):
    help = "Back up rows and blobs into a folder, while everything runs. Again into the same folder: only what is new."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *args: Any, folder: Path, **options: Any) -> None:
        manifest = create_backup(folder, say=self.stdout.write)
        size = manifest.database_bytes + sum(manifest.blobs.values())
        self.stdout.write(
            f"Backed up {len(manifest.blobs)} blob(s) and the database, {size} bytes, in {folder}. It holds the hashes "
            "of credentials and whatever was uploaded: keep it as safe as the installation. The settings are not in it."
        )
