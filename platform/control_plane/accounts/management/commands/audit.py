from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from control_plane.accounts.audit import audit_log
from control_plane.accounts.audit.audit_api import audit_line
from control_plane.accounts.models import AuditEntry


class Command(BaseCommand):
    help = "verify: check every chain of the audit log, name the first broken entry. export: all of it as JSON lines."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=("verify", "export"))

    def handle(self, *args: Any, **options: Any) -> None:
        if options["what"] == "export":
            for entry in AuditEntry.objects.order_by("pk").iterator(chunk_size=1000):
                self.stdout.write(audit_line(entry))
            return
        while audit_log.append_to_chain():
            pass
        broken = []
        for report in audit_log.verify():
            name = report.project or "the installation"
            self.stdout.write(f"{name}: {report.entries} entries hold, head {report.head}")
            if report.broken:
                broken.append(f"{name}: {report.broken}")
        if broken:
            raise CommandError("the audit log was changed\n" + "\n".join(broken))
