from django.urls import path

from control_plane.fleet import api, pool_api, project_quota_api

urlpatterns = [
    path("pool/nodes/<str:node_id>/cordon", api.CordonView.as_view()),
    path("pool/nodes/<str:node_id>/uncordon", api.UncordonView.as_view()),
    path("pool/nodes/<str:node_id>/drain", api.DrainView.as_view()),
    path("pools", pool_api.PoolsView.as_view()),
    path("pools/<str:pool_name>/teams", pool_api.PoolTeamsView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>", pool_api.PoolTeamView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>/quota", pool_api.PoolQuotaView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>/projects", project_quota_api.TeamProjectsView.as_view()),
    path(
        "pools/<str:pool_name>/teams/<str:team_id>/projects/<str:project_id>/quota",
        project_quota_api.ProjectQuotaView.as_view(),
    ),
    path("pools/<str:pool_name>/admins", pool_api.PoolAdminsView.as_view()),
    path("pools/<str:pool_name>/admins/<str:user_id>", pool_api.PoolAdminView.as_view()),
    path("pools/<str:pool_name>/join-tokens", pool_api.JoinTokensView.as_view()),
]
