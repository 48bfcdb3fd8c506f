from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.models import Membership
from control_plane.accounts.services import create_token
from control_plane.common.errors import Problem


class Command(BaseCommand):
    help = "Print a new API token; it is shown this once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True)
        parser.add_argument("--user", default="admin")
        parser.add_argument("--scopes", nargs="+", default=["*"], help="say runs:write, or * for all")

    def handle(self, *args: Any, **options: Any) -> None:
        membership = (
            Membership.objects.filter(user__username=options["user"])
            .select_related("user", "project")
            .first()
        )
        if membership is None:
            raise CommandError(f"{options['user']!r} is in no project; run init_embedded first")
        scopes = [scope for text in options["scopes"] for scope in text.replace(",", " ").split()]
        try:
            _, text = create_token(
                user=membership.user, project=membership.project, name=options["name"], scopes=scopes
            )
        except Problem as problem:
            raise CommandError(problem.detail) from problem
        self.stdout.write(text)
