from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.assets.storage import store
from control_plane.core.infra import clock
from control_plane.ops.backup.orphan_blobs import SWEPT_AFTER, survey, sweep, this_database
from control_plane.ops.backup.verify import verify_backup, verify_store

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
        parser.add_argument(
            "--all", action="store_true", dest="everything",
            help="with --free-unnamed: also where it is more than a fifth of the store; look at --dry-run first",
        )  # fmt: skip
        parser.add_argument(
            "--store-is-mine", action="store_true",
            help="with --free-unnamed: mark the store as this database's, and no other's, before",
        )  # fmt: skip

    def handle(
        self,
        *args: Any,
        backup: Path | None,
        quick: bool,
        free_unnamed: bool,
        older_than: float,
        dry_run: bool,
        everything: bool,
        store_is_mine: bool,
        **options: Any,
    ) -> None:
        if free_unnamed:
            if backup:
                raise CommandError("--free-unnamed is about this installation; leave --backup out")
            if dry_run and store_is_mine:
                raise CommandError("--dry-run changes nothing, so the store cannot be marked with it")
            self._free_unnamed(
                older_than, dry_run=dry_run, everything=everything, store_is_mine=store_is_mine
            )
            return
        if dry_run or everything or store_is_mine:
            raise CommandError(
                "--dry-run, --all and --store-is-mine belong to --free-unnamed; without it nothing is changed anyhow"
            )
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

    def _free_unnamed(self, hours: float, *, dry_run: bool, everything: bool, store_is_mine: bool) -> None:
        if not 1 <= hours <= 24 * 3650:
            raise CommandError(
                f"--older-than={hours:g}: 1 hour at least, for a blob is written before its row"
            )
        now, older_than = clock.now(), timedelta(hours=hours)
        if not dry_run:
            self._refuse_another_store(store_is_mine=store_is_mine)
        found = survey(now=now, older_than=older_than)
        if found.is_unusual and not (dry_run or everything):
            raise CommandError(
                f"{len(found.unnamed)} of {found.objects} blob(s) and {found.unnamed_bytes} of {found.bytes} bytes "
                "would go, more than a fifth: is this the right database, with all its rows? Look at --dry-run; if it "
                "is, add --all"
            )
        count = size = 0
        for blob in found.unnamed if dry_run else sweep(found.unnamed, now=now, older_than=older_than):
            self.stdout.write(f"{blob.sha256} {blob.bytes} bytes, of {blob.touched_at:%Y-%m-%d %H:%M}")
            count, size = count + 1, size + blob.bytes
        done = "would be freed" if dry_run else "were freed"
        self.stdout.write(f"{count} blob(s) with {size} bytes {done}.")

    def _refuse_another_store(self, *, store_is_mine: bool) -> None:
        """Of a store that another database uses, what this one does not name is that one's."""
        mine, owner = this_database(), store.owner()
        if owner == mine:
            return
        if store_is_mine:
            store.set_owner(mine)
            self.stdout.write(f"The store is marked as that of the database {mine}.")
            return
        whose = f"is marked as that of the database {owner}" if owner else "is not marked as any database's"
        raise CommandError(
            f"the store {whose}, and this one is {mine}: it would free what another names. If no other database uses "
            "this STORAGE_URL, a copy or a staging neither, say --store-is-mine once"
        )
