from django.apps import AppConfig

from control_plane.common.metric_sources import register


class RunsConfig(AppConfig):
    name = "control_plane.runs"
    label = "runs"

    def ready(self) -> None:
        from control_plane.runs.metrics import collect

        register(collect)
