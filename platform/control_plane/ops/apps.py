from django.apps import AppConfig


class OpsConfig(AppConfig):
    """What an operator does at a shell: no model, no route."""

    name = "control_plane.ops"
    label = "ops"
