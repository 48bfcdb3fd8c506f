from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.identity.services import create_login_link
from control_plane.accounts.models import User
from control_plane.core.infra import clock


class Command(BaseCommand):
    help = "Print the path of a single-use login link (15 minutes)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", default="admin")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            raise CommandError(f"there is no user {options['user']!r}; run init_embedded first")
        self.stdout.write(create_login_link(user, now=clock.now()))
