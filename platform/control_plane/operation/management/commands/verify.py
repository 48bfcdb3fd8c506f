from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.common import clock
from control_plane.operation.backup.sweep import SWEPT_AFTER, sweep, unnamed
from control_plane.operation.backup.verify import verify_backup, verify_store

HOUR = timedelta(hours=1)


class Command(BaseCommand):
    help = "Compare every row with the bytes that it names, of this installation or of a backup. Exits 1 at a fault."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--backup", type=Path, help="a backup's folder, instead of this installation")
        parser.add_argument("--quick", action="store_true", help="sizes only, without reading the bytes")
        parser.add_argument(
            "--free-unnamed", action="store_true",
            help="instead: free the blobs of this installation that no row names and that are old enough",
        )  # fmt: skip
        parser.add_argument(
            "--older-than", type=float, default=SWEPT_AFTER / HOUR, metavar="HOURS",
            help="with --free-unnamed: how old a blob must be (at least 1; default 24)",
        )  # fmt: skip
        parser.add_argument("--dry-run", action="store_true", help="with --free-unnamed: only say which")

    def handle(
        self,
        *args: Any,
        backup: Path | None,
        quick: bool,
        free_unnamed: bool,
        older_than: float,
        dry_run: bool,
        **options: Any,
    ) -> None:
        if free_unnamed:
            if backup:
                raise CommandError("--free-unnamed is about this installation; leave --backup out")
            self._free_unnamed(older_than, dry_run=dry_run)
            return
        if dry_run:
            raise CommandError("--dry-run belongs to --free-unnamed; without it nothing is changed anyhow")
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

    def _free_unnamed(self, hours: float, *, dry_run: bool) -> None:
        if not 1 <= hours <= 24 * 3650:
            raise CommandError(
                f"--older-than={hours:g}: 1 hour at least, for a blob is written before its row"
            )
        look = unnamed if dry_run else sweep
        count = size = 0
        for blob in look(now=clock.now(), older_than=timedelta(hours=hours)):
            self.stdout.write(f"{blob.sha256} {blob.bytes} bytes, of {blob.touched_at:%Y-%m-%d %H:%M}")
            count, size = count + 1, size + blob.bytes
        done = "would be freed" if dry_run else "were freed"
        self.stdout.write(f"{count} blob(s) with {size} bytes {done}.")
