from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "control_plane.runs"
    label = "runs"
