from __future__ import annotations

from django.urls import path

from control_plane.tunnel.consumers import RelayConsumer

websocket_urlpatterns = [path("ws/v1/tunnel", RelayConsumer.as_asgi())]
