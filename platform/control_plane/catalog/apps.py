from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "control_plane.catalog"
    label = "catalog"
