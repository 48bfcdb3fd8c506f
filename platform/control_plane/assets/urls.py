from django.urls import path

from control_plane.assets import api, selectors
from control_plane.assets.base_models import import_api, model_api
from control_plane.assets.datasets import dataset_api, validation_api, version_api
from control_plane.assets.functions import function_api
from control_plane.assets.storage import upload_api
from control_plane.core.api.long_poll import by_asking, long_poll

validation = long_poll(
    validation_api.ValidationView.as_view(), id="validation_id", shown="state", status=selectors.state_of_validation,
    bell=by_asking,
)  # fmt: skip

model = long_poll(
    model_api.ModelView.as_view(),
    id="model_id",
    shown="state",
    status=selectors.state_of_model,
    bell=by_asking,
)

urlpatterns = [
    path("uploads", api.UploadsView.as_view()),
    path("uploads/fetch", api.FetchUploadView.as_view()),
    path("upload-sessions", upload_api.UploadSessionsView.as_view()),
    path("upload-sessions/<str:session_id>", upload_api.UploadSessionView.as_view()),
    path("upload-sessions/<str:session_id>/parts/<int:number>", upload_api.UploadSessionPartView.as_view()),
    path("upload-sessions/<str:session_id>/complete", upload_api.UploadSessionCompleteView.as_view()),
    path("datasets", api.DatasetsView.as_view()),
    path("datasets/<str:dataset_id>", api.DatasetView.as_view()),
    path("datasets/<str:dataset_id>/versions", api.VersionsView.as_view()),
    path("datasets/<str:dataset_id>/merge", version_api.MergeView.as_view()),
    path("datasets/<str:dataset_id>/aliases", dataset_api.DatasetAliasesView.as_view()),
    path("datasets/<str:dataset_id>/aliases/<str:dataset_alias>", dataset_api.DatasetAliasView.as_view()),
    path("dataset-versions/<str:version_id>/statistics", dataset_api.MeasurementsView.as_view()),
    path("dataset-validations", validation_api.ValidationsView.as_view()),
    path("dataset-validations/<str:validation_id>", validation),
    path("dataset-validations/<str:validation_id>/report", validation_api.ValidationReportView.as_view()),
    path("dataset-versions/resolve", api.ResolveVersionView.as_view()),
    path("dataset-versions/<str:version_id>", api.VersionView.as_view()),
    path("dataset-versions/<str:version_id>/rows", api.RowsView.as_view()),
    path("dataset-versions/<str:version_id>/split", version_api.SplitView.as_view()),
    path("dataset-versions/<str:version_id>/diff", version_api.DifferenceView.as_view()),
    path("dataset-versions/<str:version_id>/leakage", version_api.LeakageView.as_view()),
    path("models", model_api.ModelsView.as_view()),
    path("model-imports", import_api.ModelImportsView.as_view()),
    path("model-imports/<str:import_id>", import_api.ModelImportView.as_view()),
    path("models/resolve", model_api.ResolveModelView.as_view()),
    path("models/<str:model_id>", model),
    path("functions", function_api.FunctionsView.as_view()),
    path("functions/<str:function_id>", function_api.FunctionView.as_view()),
    path("function-versions/resolve", function_api.ResolveFunctionView.as_view()),
    path("function-versions/<str:function_version_id>/source", function_api.FunctionSourceView.as_view()),
]
