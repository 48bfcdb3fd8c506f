from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from control_plane.accounts.services import init_embedded
from control_plane.fleet.services import init_pool


class Command(BaseCommand):
    help = "Make the user, team, project and quota of a single machine. Safe to repeat."

    def handle(self, *args: Any, **options: Any) -> None:
        project = init_embedded()
        init_pool(project.team)
        self.stdout.write(f"user admin, team {project.team.name}, project {project.name}")
