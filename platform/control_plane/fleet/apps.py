from django.apps import AppConfig

from control_plane.core.infra.metric_sources import register


class FleetConfig(AppConfig):
    name = "control_plane.fleet"
    label = "fleet"

    def ready(self) -> None:
        from control_plane.fleet.metrics import collect

        register(collect)
