from __future__ import annotations

from django.urls import path

from control_plane.telemetry.stream.consumers import StreamConsumer

websocket_urlpatterns = [path("ws/v1", StreamConsumer.as_asgi())]
