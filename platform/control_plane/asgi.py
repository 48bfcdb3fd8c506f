"""The ASGI door: HTTP to Django, /ws/v1 to Channels."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
http = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402  (Django must be set up first)
from django.conf import settings  # noqa: E402
from django.urls import get_resolver  # noqa: E402

from control_plane.asgi_wrapper import guarded, guarded_sockets, keep_bodies_in_scratch  # noqa: E402
from control_plane.assets.storage import store  # noqa: E402
from control_plane.core.infra import gc_tuning  # noqa: E402
from control_plane.core.security.forwarded import ForwardedHeaders  # noqa: E402
from control_plane.fleet.web_liveness import start_receiver_pulse  # noqa: E402
from control_plane.routing import websocket_urlpatterns  # noqa: E402
from oolong.tracing import start_tracing  # noqa: E402

keep_bodies_in_scratch()
store.check()  # better no service than one that loses files

application = ForwardedHeaders(
    ProtocolTypeRouter(
        {"http": guarded(http), "websocket": guarded_sockets(URLRouter(websocket_urlpatterns))}
    ),
    trusted=settings.ENVIRONMENT.trusted_proxies,
    redis_url=settings.ENVIRONMENT.redis_url,
)
start_receiver_pulse()
start_tracing("oolong-web")
get_resolver().url_patterns  # noqa: B018  (otherwise the first request imports every view)
gc_tuning.settle()
