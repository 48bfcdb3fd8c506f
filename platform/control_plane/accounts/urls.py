from django.urls import path

from control_plane.accounts import api, audit_api, secret_api

urlpatterns = [
    path("health", api.HealthView.as_view()),
    path("me", api.MeView.as_view()),
    path("session", api.SessionView.as_view()),
    path("session/csrf", api.CsrfView.as_view()),
    path("project", api.ProjectView.as_view()),
    path("project/events", api.ProjectEventsView.as_view()),
    path("audit", audit_api.AuditView.as_view()),
    path("audit/export", audit_api.AuditExportView.as_view()),
    path("secrets", secret_api.SecretsView.as_view()),
    path("secrets/<str:secret_name>", secret_api.SecretView.as_view()),
    path("tokens", api.TokensView.as_view()),
    path("tokens/<str:token_id>", api.TokenView.as_view()),
]
