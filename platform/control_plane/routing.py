"""Every WebSocket door."""

from control_plane.relay import routing as relay
from control_plane.telemetry import routing as telemetry

websocket_urlpatterns = [*telemetry.websocket_urlpatterns, *relay.websocket_urlpatterns]
