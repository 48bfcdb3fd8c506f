from django.apps import AppConfig


class CheckpointsConfig(AppConfig):
    name = "control_plane.checkpoints"
    label = "checkpoints"
