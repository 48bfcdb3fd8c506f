from __future__ import annotations

from django.urls import path

from control_plane.tunnel.consumers import TunnelConsumer

websocket_urlpatterns = [path("ws/v1/tunnel", TunnelConsumer.as_asgi())]
