from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.permissions import AllowAny

from control_plane.accounts.identity import oidc
from control_plane.accounts.identity.api import login_link_view
from control_plane.core.api.docs_pages import docs_page
from control_plane.core.api.errors import not_found_view, server_error_view
from control_plane.core.api.spa import dashboard
from control_plane.core.infra.health import healthz, readyz
from control_plane.core.infra.metrics import metrics_view
from control_plane.ops import client_api

_open = {"permission_classes": [AllowAny], "authentication_classes": []}

api: list[URLPattern | URLResolver] = [
    path("openapi.json", SpectacularJSONAPIView.as_view(**_open), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema", **_open)),
    path("client", client_api.ClientPackageView.as_view()),
    path("client/requirements.txt", client_api.ClientRequirementsView.as_view()),
    path("client/<str:filename>", client_api.ClientWheelView.as_view()),
    path("", include("control_plane.accounts.urls")),
    path("", include("control_plane.webhooks.urls")),
    path("", include("control_plane.assets.urls")),
    path("", include("control_plane.checkpoints.urls")),
    path("", include("control_plane.fleet.urls")),
    path("", include("control_plane.telemetry.urls")),  # first: runs/sparklines is no run's id
    path("", include("control_plane.runs.urls")),
    path("", include("control_plane.experiments.urls")),
    path("", include("control_plane.agent_api.urls")),
    path("", include("control_plane.tunnel.urls")),
]

urlpatterns = [
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics_view),
    path("api/v1/", include(api)),
    path("login/oidc", oidc.start),
    path("login/oidc/callback", oidc.callback),
    path("login/<str:token>", login_link_view),
    path("docs", docs_page),
    path("docs/<path:page>", docs_page),
    re_path(r"^(?!api/|ws/|static/)(?P<path>.*)$", dashboard),
]
handler404 = not_found_view
handler500 = server_error_view
