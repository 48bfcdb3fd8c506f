from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "control_plane.fleet"
    label = "fleet"
