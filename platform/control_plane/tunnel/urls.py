from django.urls import path

from control_plane.tunnel.views import relay
from oolong.contracts.relay.endpoints import ENDPOINTS

urlpatterns = [
    pattern
    for name in ENDPOINTS
    for pattern in (
        path(f"runs/<str:run_id>/{name}", relay, {"endpoint": name}),
        path(f"runs/<str:run_id>/{name}/<path:path>", relay, {"endpoint": name}),
    )
]
