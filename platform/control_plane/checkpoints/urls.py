from django.urls import path

from control_plane.checkpoints import promotion_gate_api, provenance_api, registry_api

urlpatterns = [
    path("checkpoint-aliases/<str:alias>", promotion_gate_api.AliasView.as_view()),
    path("checkpoint-gates", promotion_gate_api.GatesView.as_view()),
    path("checkpoint-gates/<str:alias>", promotion_gate_api.GateView.as_view()),
    path("checkpoint-gates/<str:alias>/result", promotion_gate_api.GateResultView.as_view()),
    path("checkpoint-gates/<str:alias>/runs", promotion_gate_api.GateRunsView.as_view()),
    path("checkpoints/<str:checkpoint_id>/lineage", provenance_api.LineageView.as_view()),
    path("checkpoints/<str:checkpoint_id>/card", provenance_api.ModelCardView.as_view()),
    path("checkpoint-retention", provenance_api.RetentionView.as_view()),
    path("checkpoint-retention/plan", provenance_api.RetentionPlanView.as_view()),
    path("checkpoint-retention/apply", provenance_api.RetentionApplyView.as_view()),
    path("checkpoints", registry_api.CheckpointsView.as_view()),
    path("checkpoints/resolve", registry_api.ResolveCheckpointView.as_view()),
    path("checkpoints/<str:checkpoint_id>", registry_api.CheckpointView.as_view()),
    path("checkpoints/<str:checkpoint_id>/download", registry_api.CheckpointDownloadView.as_view()),
    path("checkpoints/<str:checkpoint_id>/merged", registry_api.MergedModelView.as_view()),
    path("checkpoints/<str:checkpoint_id>/files", registry_api.CheckpointFilesView.as_view()),
    path("checkpoints/<str:checkpoint_id>/links", registry_api.CheckpointLinkView.as_view()),
    path("checkpoint-downloads/<str:link>", registry_api.SignedDownloadView.as_view()),
    path("checkpoint-downloads/<str:link>/files", registry_api.SignedFilesView.as_view()),
    path("checkpoint-aliases", registry_api.AliasesView.as_view()),
]
