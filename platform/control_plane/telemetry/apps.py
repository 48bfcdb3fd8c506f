from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    name = "control_plane.telemetry"
    label = "telemetry"
