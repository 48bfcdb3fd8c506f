from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.common import clock
from control_plane.operation.backup.verify import verify_backup, verify_store


class Command(BaseCommand):
    help = "Compare every row with the bytes that it names, of this installation or of a backup. Exits 1 at a fault."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backup", type=Path, help="a backup's folder, instead of this installation")
        parser.add_argument("--quick", action="store_true", help="sizes only, without reading the bytes")

    def handle(self, *args: Any, backup: Path | None, quick: bool, **options: Any) -> None:
        found = verify_backup(backup) if backup else verify_store(now=clock.now(), quick=quick)
        faults = extra = 0
        for finding in found:
            self.stdout.write(str(finding))
            faults += finding.is_fault
            extra += not finding.is_fault
        if faults:
            raise CommandError(f"{faults} fault(s) were found", returncode=1)
        checked = "sizes" if quick and not backup else "every byte"
        self.stdout.write(f"All is well: {checked} compared, {extra} blob(s) that nobody names.")
