from __future__ import annotations

import getpass
import sys
from typing import Any

from django.conf import settings
from django.contrib.auth.password_validation import MinimumLengthValidator
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.identity.services import create_login_link, init_embedded
from control_plane.accounts.models import User
from control_plane.core.infra import clock
from control_plane.fleet.pools import default_pool
from control_plane.ops.dependency_checks import check_dependencies

LEAST_PASSWORD = 12


class Command(BaseCommand):
    help = (
        "Check the services, migrate, make the first user. Safe to repeat; nothing that is there is changed."
    )
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--admin", default="admin")
        parser.add_argument(
            "--password", action="store_true", help="ask for a password instead of giving a link"
        )
        parser.add_argument("--check-only", action="store_true")

    def handle(self, *args: Any, admin: str, password: bool, check_only: bool, **options: Any) -> None:
        faults = 0
        for found in check_dependencies():
            self.stdout.write(f"  {'ok   ' if found.ok else 'FAULT'} {found.service}: {found.message}")
            faults += not found.ok
        if faults:
            raise CommandError(f"{faults} service(s) cannot be used; nothing was changed", returncode=1)
        if check_only:
            return
        call_command("migrate", interactive=False, verbosity=0)
        self.stdout.write("  ok    the tables are those of this version")
        existed = User.objects.filter(username=admin).exists()
        secret = None if existed or not password else _read_password()
        init_embedded(username=admin)
        default_pool()
        user = User.objects.get(username=admin)
        if existed:
            self.stdout.write(
                f"  ok    the user {admin!r} was there and is unchanged (`manage.py login_link` logs in)"
            )
        elif secret is not None:
            user.set_password(secret)
            user.save(update_fields=["password"])
            self.stdout.write(f"  ok    the user {admin!r} is made, with your password")
        else:
            path = create_login_link(user, now=clock.now())
            link = path if path.startswith("http") else settings.ENVIRONMENT.public_url.rstrip("/") + path
            self.stdout.write(
                f"  ok    the user {admin!r} is made, without a password. This link logs in once, within 15 minutes:\n"
                f"        {link}"
            )


def _read_password() -> str:
    if not sys.stdin.isatty():
        raise CommandError(
            "--password asks on a terminal, and there is none; leave it away to get a login link"
        )
    first = getpass.getpass("Password of the admin: ")
    try:
        MinimumLengthValidator(LEAST_PASSWORD).validate(first)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    if getpass.getpass("Again: ") != first:
        raise CommandError("the two are not the same; nothing was made")
    return first
