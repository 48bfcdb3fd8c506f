import os

from django.apps import AppConfig

from control_plane.core.infra.metric_sources import register


class CoreConfig(AppConfig):
    name = "control_plane.core"
    label = "core"

    def ready(self) -> None:
        from control_plane.core.infra.periodic_tasks import collect
        from oolong.variables import report_unknown

        report_unknown(os.environ)
        register(collect)
