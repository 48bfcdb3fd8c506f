"""The ASGI application: HTTP goes to Django, /ws/v1 to Channels."""

from __future__ import annotations

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
http = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402  (Django must be set up first)
from django.conf import settings  # noqa: E402
from django.urls import get_resolver  # noqa: E402

from control_plane.asgi_wrapper import set_upload_tempdir, wrap_http, wrap_websockets  # noqa: E402
from control_plane.assets.storage import store  # noqa: E402
from control_plane.core.infra import gc_tuning  # noqa: E402
from control_plane.core.security.forwarded import ForwardedHeaders  # noqa: E402
from control_plane.fleet.web_liveness import start_liveness_thread  # noqa: E402
from control_plane.routing import websocket_urlpatterns  # noqa: E402
from oolong.tracing import start_tracing  # noqa: E402

set_upload_tempdir()
store.check()  # do not start a service that would lose files

application = ForwardedHeaders(
    ProtocolTypeRouter(
        {"http": wrap_http(http), "websocket": wrap_websockets(URLRouter(websocket_urlpatterns))}
    ),
    trusted=settings.ENVIRONMENT.trusted_proxies,
    redis_url=settings.ENVIRONMENT.redis_url,
)
start_liveness_thread()
start_tracing("oolong-web")
get_resolver().url_patterns  # noqa: B018  (otherwise the first request imports every view)
gc_tuning.freeze()
