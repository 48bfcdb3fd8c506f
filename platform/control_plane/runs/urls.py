from django.urls import path

from control_plane.common.long_poll import by_stream, long_poll
from control_plane.runs import agent_api, api, checkpoint_api, gate_api, reward_test_api, selectors

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
    path("runs/<str:run_id>", run),
    path("runs/<str:run_id>/pause", api.PauseView.as_view()),
    path("runs/<str:run_id>/resume", api.ResumeView.as_view()),
    path("runs/<str:run_id>/changes", api.ChangesView.as_view()),
    path("runs/<str:run_id>/clone", api.CloneView.as_view()),
    path("runs/<str:run_id>/retry", api.RetryView.as_view()),
    path("runs/<str:run_id>/submit", api.SubmitView.as_view()),
    path("runs/<str:run_id>/stop", api.StopView.as_view()),
    path("runs/<str:run_id>/force-stop", api.ForceStopView.as_view()),
    path("runs/<str:run_id>/cancel", api.CancelView.as_view()),
    path("runs/<str:run_id>/events", api.EventsView.as_view()),
    path("runs/<str:run_id>/attempts", api.AttemptsView.as_view()),
    path("runs/<str:run_id>/jobs", api.JobsView.as_view()),
    path("checkpoint-aliases/<str:alias>", gate_api.AliasView.as_view()),
    path("reward-tests", reward_test_api.RewardTestsView.as_view()),
    path("reward-tests/<str:reward_test_id>", reward_test_api.RewardTestView.as_view()),
    path("checkpoint-gates", gate_api.GatesView.as_view()),
    path("checkpoint-gates/<str:alias>", gate_api.GateView.as_view()),
    path("checkpoint-gates/<str:alias>/verdict", gate_api.VerdictView.as_view()),
    path("checkpoint-gates/<str:alias>/runs", gate_api.GateRunsView.as_view()),
    path("checkpoints/<str:checkpoint_id>/lineage", checkpoint_api.LineageView.as_view()),
    path("checkpoints/<str:checkpoint_id>/card", checkpoint_api.ModelCardView.as_view()),
    path("checkpoint-retention", checkpoint_api.RetentionView.as_view()),
    path("checkpoint-retention/plan", checkpoint_api.RetentionPlanView.as_view()),
    path("checkpoint-retention/apply", checkpoint_api.RetentionApplyView.as_view()),
    path("pool", api.PoolView.as_view()),
    path("agent/enrol", agent_api.EnrolView.as_view()),
    path("agent/heartbeat", agent_api.HeartbeatView.as_view()),
    path("agent/artifacts/<str:sha256>", agent_api.ArtifactView.as_view()),
    path("agent/attempts/<str:attempt_id>/checkpoints", agent_api.CheckpointUploadsView.as_view()),
    path("agent/uploads/<str:upload_id>/parts/<int:number>", agent_api.UploadPartView.as_view()),
    path("agent/uploads/<str:upload_id>/complete", agent_api.UploadCompleteView.as_view()),
]
