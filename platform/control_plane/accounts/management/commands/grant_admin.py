from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.identity.services import set_installation_admin
from control_plane.accounts.models import User
from control_plane.core.api.errors import Problem


class Command(BaseCommand):
    help = "Let a user administer the installation (make teams), or no longer."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--remove", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"], service_of=None).first()
        if user is None:
            raise CommandError(f"there is no user {options['username']!r}")
        try:
            set_installation_admin(user, not options["remove"])
        except Problem as problem:
            raise CommandError(problem.detail) from problem
        said = "no longer administers" if options["remove"] else "administers"
        self.stdout.write(f"{user.username} {said} the installation")
