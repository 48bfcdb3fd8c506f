"""Every WebSocket route."""

from control_plane.telemetry.stream import routing as telemetry
from control_plane.tunnel import routing as relay

websocket_urlpatterns = [*telemetry.websocket_urlpatterns, *relay.websocket_urlpatterns]
