from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.core.infra import clock
from control_plane.fleet.models import DEFAULT_POOL, Pool
from control_plane.fleet.pools import default_pool
from control_plane.fleet.services import create_join_token


class Command(BaseCommand):
    help = "Print a token with which one node may join a pool within 15 minutes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--pool", default=DEFAULT_POOL, help="the pool that the node joins")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["pool"]
        pool = default_pool() if name == DEFAULT_POOL else Pool.objects.filter(pk=name).first()
        if pool is None:
            raise CommandError(f"there is no pool {name!r}; create it: python3 manage.py pool create {name}")
        token, _ = create_join_token(pool, now=clock.now())
        self.stdout.write(token)
