from django.urls import path

from control_plane.fleet import api, calendar_api, pool_api, price_api, project_quota_api

urlpatterns = [
    path("pool/nodes/<str:node_id>/cordon", api.CordonView.as_view()),
    path("pool/nodes/<str:node_id>/uncordon", api.UncordonView.as_view()),
    path("pool/nodes/<str:node_id>/drain", api.DrainView.as_view()),
    path("pool/nodes/<str:node_id>/quarantine", api.QuarantineView.as_view()),
    path("pool/nodes/<str:node_id>/release", api.ReleaseView.as_view()),
    path("pools/<str:pool_name>/reservations", calendar_api.ReservationsView.as_view()),
    path("pools/<str:pool_name>/reservations/<str:reservation_id>", calendar_api.ReservationView.as_view()),
    path("pools/<str:pool_name>/maintenance", calendar_api.MaintenanceView.as_view()),
    path("pools/<str:pool_name>/maintenance/<str:window_id>", calendar_api.MaintenanceWindowView.as_view()),
    path("pools", pool_api.PoolsView.as_view()),
    path("pools/<str:pool_name>/teams", pool_api.PoolTeamsView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>", pool_api.PoolTeamView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>/quota", pool_api.PoolQuotaView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>/projects", project_quota_api.TeamProjectsView.as_view()),
    path(
        "pools/<str:pool_name>/teams/<str:team_id>/projects/<str:project_id>/quota",
        project_quota_api.ProjectQuotaView.as_view(),
    ),
    path("pools/<str:pool_name>/prices", price_api.PoolPricesView.as_view()),
    path("pools/<str:pool_name>/admins", pool_api.PoolAdminsView.as_view()),
    path("pools/<str:pool_name>/admins/<str:user_id>", pool_api.PoolAdminView.as_view()),
    path("pools/<str:pool_name>/join-tokens", pool_api.JoinTokensView.as_view()),
]
