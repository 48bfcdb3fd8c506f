from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.identity.services import TOKEN_LIFE, create_token
from control_plane.accounts.models import Membership
from control_plane.core.api.errors import Problem
from control_plane.core.infra import clock


class Command(BaseCommand):
    help = "Print a new API token; it is shown this once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--name", required=True)
        parser.add_argument("--user", default="admin")
        parser.add_argument("--scopes", nargs="+", default=["*"], help="say runs:write, or * for all")
        ends = parser.add_mutually_exclusive_group()
        ends.add_argument("--days", type=int, default=TOKEN_LIFE.days, help="expires after this many days")
        ends.add_argument("--no-expiry", action="store_true", help="never expires")

    def handle(self, *args: Any, **options: Any) -> None:
        membership = (
            Membership.objects.filter(user__username=options["user"])
            .select_related("user", "project")
            .first()
        )
        if membership is None:
            raise CommandError(f"{options['user']!r} is in no project; run init_embedded first")
        scopes = [scope for text in options["scopes"] for scope in text.replace(",", " ").split()]
        if options["days"] < 1:
            raise CommandError(f"--days {options['days']}: at least 1, or --no-expiry")
        expires_at = None if options["no_expiry"] else clock.now() + timedelta(days=options["days"])
        try:
            _, text = create_token(
                user=membership.user, project=membership.project, name=options["name"], scopes=scopes,
                expires_at=expires_at,
            )  # fmt: skip
        except Problem as problem:
            raise CommandError(problem.detail) from problem
        self.stdout.write(text)
