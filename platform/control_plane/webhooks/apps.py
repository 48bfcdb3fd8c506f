from django.apps import AppConfig

from control_plane.core.infra.metric_sources import register


class WebhooksConfig(AppConfig):
    name = "control_plane.webhooks"
    label = "webhooks"

    def ready(self) -> None:
        from control_plane.webhooks.metrics import collect

        register(collect)
