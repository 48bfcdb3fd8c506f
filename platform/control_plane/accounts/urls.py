from django.urls import path

from control_plane.accounts.audit import audit_api
from control_plane.accounts.identity import api
from control_plane.accounts.secrets import secret_api
from control_plane.accounts.teams import invitation_api, member_api, service_account_api, team_api
from control_plane.accounts.tokens import ticket_api, token_api

urlpatterns = [
    path("health", api.HealthView.as_view()),
    path("me", api.MeView.as_view()),
    path("session", api.SessionView.as_view()),
    path("session/methods", api.SessionMethodsView.as_view()),
    path("session/csrf", api.CsrfView.as_view()),
    path("project", api.ProjectView.as_view()),
    path("project/events", api.ProjectEventsView.as_view()),
    path("audit", audit_api.AuditView.as_view()),
    path("audit/chain", audit_api.AuditChainView.as_view()),
    path("audit/export", audit_api.AuditExportView.as_view()),
    path("stream-tickets", ticket_api.StreamTicketsView.as_view()),
    path("secrets", secret_api.SecretsView.as_view()),
    path("secrets/<str:secret_name>", secret_api.SecretView.as_view()),
    path("session/project", api.SessionProjectView.as_view()),
    path("tokens", token_api.TokensView.as_view()),
    path("tokens/<str:token_id>", token_api.TokenView.as_view()),
    path("tokens/<str:token_id>/rotate", token_api.TokenRotateView.as_view()),
    path("teams", team_api.TeamsView.as_view()),
    path("team", team_api.TeamView.as_view()),
    path("team/members", member_api.TeamMembersView.as_view()),
    path("team/members/<str:user_id>", member_api.TeamMemberView.as_view()),
    path("projects", team_api.ProjectsView.as_view()),
    path("members", member_api.MembersView.as_view()),
    path("members/<str:user_id>", member_api.MemberView.as_view()),
    path("invitations", invitation_api.InvitationsView.as_view()),
    path("invitations/lookup", invitation_api.InvitationLookupView.as_view()),
    path("invitations/accept", invitation_api.InvitationAcceptView.as_view()),
    path("invitations/<str:invitation_id>", invitation_api.InvitationView.as_view()),
    path("service-accounts", service_account_api.ServiceAccountsView.as_view()),
    path("service-accounts/<str:service_account_id>", service_account_api.ServiceAccountView.as_view()),
    path(
        "service-accounts/<str:service_account_id>/tokens",
        service_account_api.ServiceAccountTokensView.as_view(),
    ),
]
