from django.apps import AppConfig

from control_plane.common import health


class CatalogConfig(AppConfig):
    name = "control_plane.catalog"
    label = "catalog"

    def ready(self) -> None:
        from control_plane.catalog.health import check_store

        health.CHECKS["store"] = check_store
