from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control_plane.accounts.secret_services import rotate
from control_plane.common.sealing import CannotOpen


class Command(BaseCommand):
    help = "Seal every project secret with the first key of OOLONG_SECRETS_KEYS; then the older ones may go."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            changed = rotate()
        except CannotOpen as error:
            raise CommandError(f"a secret cannot be opened: {error}") from error
        self.stdout.write(f"{changed} secrets are sealed with the newest key now")
