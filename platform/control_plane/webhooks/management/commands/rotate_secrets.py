from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from control_plane.accounts.secrets import secret_services
from control_plane.core.security.encryption import DecryptionError
from control_plane.webhooks import signing_secrets


class Command(BaseCommand):
    help = (
        "Seal secrets of projects and webhooks with the first of OOLONG_SECRETS_KEYS; then older keys may go."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            changed = secret_services.rotate() + signing_secrets.rotate()
        except DecryptionError as error:
            raise CommandError(f"a secret cannot be opened: {error}") from error
        self.stdout.write(f"{changed} secrets are sealed with the newest key now")
