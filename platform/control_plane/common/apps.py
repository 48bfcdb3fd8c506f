from django.apps import AppConfig


class CommonConfig(AppConfig):
    name = "control_plane.common"
    label = "common"
