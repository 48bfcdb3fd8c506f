from django.apps import AppConfig

from control_plane.core.infra import health


class AssetsConfig(AppConfig):
    name = "control_plane.assets"
    label = "assets"

    def ready(self) -> None:
        from control_plane.assets.storage.health import check_store

        health.CHECKS["store"] = check_store
