"""The web process, but its sockets wait longer for their clients than a machine can stand still."""

from __future__ import annotations

from control_plane.asgi import application
from control_plane.telemetry.stream import consumers

__all__ = ["application"]

consumers.AUTHENTICATE_SECONDS = consumers.SLOW_SECONDS = 3600.0
