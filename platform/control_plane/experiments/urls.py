from django.urls import path

from control_plane.experiments import (
    playground_api,
    reward_test_api,
    saved_view_api,
    sweep_api,
    template_api,
    usage_api,
)

urlpatterns = [
    path("run-templates", template_api.TemplatesView.as_view()),
    path("run-templates/<str:template_id>", template_api.TemplateView.as_view()),
    path("run-templates/<str:template_id>/versions", template_api.TemplateVersionsView.as_view()),
    path("sweeps", sweep_api.SweepsView.as_view()),
    path("sweeps/<str:sweep_id>", sweep_api.SweepView.as_view()),
    path("sweeps/<str:sweep_id>/trials", sweep_api.TrialsView.as_view()),
    path("sweeps/<str:sweep_id>/pause", sweep_api.PauseSweepView.as_view()),
    path("sweeps/<str:sweep_id>/resume", sweep_api.ResumeSweepView.as_view()),
    path("sweeps/<str:sweep_id>/cancel", sweep_api.CancelSweepView.as_view()),
    path("saved-views", saved_view_api.SavedViewsView.as_view()),
    path("saved-views/<str:view_id>", saved_view_api.SavedViewView.as_view()),
    path("playgrounds", playground_api.PlaygroundsView.as_view()),
    path("playgrounds/<str:playground_id>", playground_api.PlaygroundView.as_view()),
    path("reward-tests", reward_test_api.RewardTestsView.as_view()),
    path("reward-tests/<str:reward_test_id>", reward_test_api.RewardTestView.as_view()),
    path("pool/usage", usage_api.UsageView.as_view()),
    path("pool/usage/series", usage_api.UsageSeriesView.as_view()),
]
