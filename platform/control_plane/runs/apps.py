from django.apps import AppConfig

from control_plane.core.infra.metric_sources import register


class RunsConfig(AppConfig):
    name = "control_plane.runs"
    label = "runs"

    def ready(self) -> None:
        from control_plane.assets.base_models import model_roots
        from control_plane.fleet.selectors import model_roots as offered_by_nodes
        from control_plane.fleet.services import notify_nodes_offering
        from control_plane.runs.metrics import collect

        register(collect)
        model_roots.source, model_roots.ring = offered_by_nodes, notify_nodes_offering
