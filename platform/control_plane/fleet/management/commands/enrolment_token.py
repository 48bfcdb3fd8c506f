from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from control_plane.common import clock
from control_plane.fleet.services import create_enrolment_token


class Command(BaseCommand):
    help = "Print a token with which one node may join the pool within 15 minutes."

    def handle(self, *args: Any, **options: Any) -> None:
        token, _ = create_enrolment_token(now=clock.now())
        self.stdout.write(token)
