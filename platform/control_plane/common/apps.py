import os

from django.apps import AppConfig

from control_plane.common.metric_sources import register


class CommonConfig(AppConfig):
    name = "control_plane.common"
    label = "common"

    def ready(self) -> None:
        from control_plane.common.ticks import collect
        from oolong.variables import report_unknown

        report_unknown(os.environ)
        register(collect)
