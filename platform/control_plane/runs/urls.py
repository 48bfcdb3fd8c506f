from django.urls import path

from control_plane.core.api.long_poll import by_stream, long_poll
from control_plane.runs import actions_api, api, budget_api, pool_removal_api, selectors

run = long_poll(
    api.RunView.as_view(),
    id="run_id",
    shown="status",
    status=selectors.status_of,
    bell=by_stream("run:{}".format),
)

urlpatterns = [
    path("presets", api.PresetsView.as_view()),
    path("runs", api.RunsView.as_view()),
    path("runs/validate", api.ValidateView.as_view()),
    path("runs/plan", api.PlanView.as_view()),
    path("runs/what-if", api.SpecWhatIfView.as_view()),
    path("runs/<str:run_id>", run),
    path("runs/<str:run_id>/pause", actions_api.PauseView.as_view()),
    path("runs/<str:run_id>/resume", actions_api.ResumeView.as_view()),
    path("runs/<str:run_id>/runtime", actions_api.ChangesView.as_view()),
    path("runs/<str:run_id>/clone", actions_api.CloneView.as_view()),
    path("runs/<str:run_id>/retry", actions_api.RetryView.as_view()),
    path("runs/<str:run_id>/submit", actions_api.SubmitView.as_view()),
    path("runs/<str:run_id>/stop", actions_api.StopView.as_view()),
    path("runs/<str:run_id>/force-stop", actions_api.ForceStopView.as_view()),
    path("runs/<str:run_id>/cancel", actions_api.CancelView.as_view()),
    path("runs/<str:run_id>/events", api.EventsView.as_view()),
    path("runs/<str:run_id>/wait", api.WaitView.as_view()),
    path("runs/<str:run_id>/what-if", api.WhatIfView.as_view()),
    path("runs/<str:run_id>/attempts", api.AttemptsView.as_view()),
    path("runs/<str:run_id>/jobs", api.JobsView.as_view()),
    path("pool", api.PoolView.as_view()),
    path("pool/nodes/<str:node_id>/revoke", pool_removal_api.RevokeView.as_view()),
    path("pools/<str:pool_name>/budgets", budget_api.BudgetsView.as_view()),
    path("pools/<str:pool_name>/teams/<str:team_id>/budget", budget_api.TeamBudgetView.as_view()),
    path("pools/<str:pool_name>/projects/<str:project_id>/budget", budget_api.ProjectBudgetView.as_view()),
    path("pools/<str:pool_name>", pool_removal_api.PoolView.as_view()),
]
