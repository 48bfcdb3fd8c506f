from django.urls import path

from control_plane.agent_api import import_api, job_api, model_check_api, secret_api

urlpatterns = [
    path("agent/enroll", job_api.EnrollView.as_view()),
    path("agent/heartbeat", job_api.HeartbeatView.as_view()),
    path("agent/leave", job_api.LeaveView.as_view()),
    path("agent/artifacts/<str:sha256>", job_api.ArtifactView.as_view()),
    path("agent/attempts/<str:attempt_id>/checkpoints", job_api.CheckpointUploadsView.as_view()),
    path("agent/model-checks/<str:check_id>/begin", model_check_api.CheckBeginView.as_view()),
    path("agent/model-checks/<str:check_id>/progress", model_check_api.CheckProgressView.as_view()),
    path("agent/model-checks/<str:check_id>/complete", model_check_api.CheckCompleteView.as_view()),
    path("agent/imports/<str:import_id>/begin", import_api.ImportBeginView.as_view()),
    path("agent/imports/<str:import_id>/progress", import_api.ImportProgressView.as_view()),
    path("agent/imports/<str:import_id>/failed", import_api.ImportFailedView.as_view()),
    path("agent/imports/<str:import_id>/uploads", import_api.ImportUploadsView.as_view()),
    path("agent/imports/<str:import_id>/parts/<int:number>", import_api.ImportPartView.as_view()),
    path("agent/imports/<str:import_id>/complete", import_api.ImportCompleteView.as_view()),
    path("agent/jobs/<str:job_id>/secrets", secret_api.JobSecretsView.as_view()),
    path("agent/uploads/<str:upload_id>/parts/<int:number>", job_api.UploadPartView.as_view()),
    path("agent/uploads/<str:upload_id>/complete", job_api.UploadCompleteView.as_view()),
]
