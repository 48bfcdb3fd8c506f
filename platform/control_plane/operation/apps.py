from django.apps import AppConfig


class OperationConfig(AppConfig):
    """What an operator does at a shell: no model, no route."""

    name = "control_plane.operation"
    label = "operation"
