from django.apps import AppConfig


class ExperimentsConfig(AppConfig):
    name = "control_plane.experiments"
    label = "experiments"
