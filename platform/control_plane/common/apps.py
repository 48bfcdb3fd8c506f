from django.apps import AppConfig

from control_plane.common.metric_sources import register


class CommonConfig(AppConfig):
    name = "control_plane.common"
    label = "common"

    def ready(self) -> None:
        from control_plane.common.ticks import collect

        register(collect)
