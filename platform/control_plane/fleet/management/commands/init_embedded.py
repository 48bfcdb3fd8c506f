from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from control_plane.accounts.identity.services import init_embedded
from control_plane.fleet.pools import default_pool


class Command(BaseCommand):
    help = "Create the user, team, project and pool of a single machine. Idempotent."

    def handle(self, *args: Any, **options: Any) -> None:
        project = init_embedded()
        default_pool()
        self.stdout.write(f"user admin, team {project.team.name}, project {project.name}")
