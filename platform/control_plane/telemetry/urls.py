from django.urls import path

from control_plane.telemetry.ingest import api as ingest
from control_plane.telemetry.logs import log_api
from control_plane.telemetry.planning import api as planning
from control_plane.telemetry.query import api
from control_plane.telemetry.stream import sse

urlpatterns = [
    path("stream", sse.stream),
    path("agent/telemetry", ingest.TelemetryBatchView.as_view()),
    path("metrics/definitions", api.MetricDefinitionsView.as_view()),
    path("runs/sparklines", api.SparklinesView.as_view()),
    path("runs/simulate", planning.SimulateView.as_view()),
    path("runs/<str:run_id>/metrics", api.MetricsView.as_view()),
    path("runs/<str:run_id>/metric-names", api.MetricNamesView.as_view()),
    path("runs/<str:run_id>/histograms", api.HistogramsView.as_view()),
    path("runs/<str:run_id>/state", api.StatesView.as_view()),
    path("runs/<str:run_id>/state/<path:name>", api.StateView.as_view()),
    path("runs/<str:run_id>/trajectories", api.TrajectoriesView.as_view()),
    path("runs/<str:run_id>/trajectories/<str:trajectory_id>", api.TrajectoryView.as_view()),
    path("runs/<str:run_id>/timeline", api.TimelineView.as_view()),
    path("runs/<str:run_id>/alerts", api.AlertsView.as_view()),
    path("runs/<str:run_id>/logs", api.LogsView.as_view()),
    path("runs/<str:run_id>/logs/search", log_api.LogSearchView.as_view()),
    path("runs/<str:run_id>/logs/download", log_api.LogDownloadView.as_view()),
]
