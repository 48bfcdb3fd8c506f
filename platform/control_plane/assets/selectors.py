"""Every read of the catalog. What is another project's does not exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from django.db.models import F, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.datasets.rows import OFFSET_STRIDE
from control_plane.assets.models import (
    BaseModel,
    Dataset,
    DatasetValidation,
    DatasetVersion,
    Function,
    FunctionVersion,
    ModelImport,
    ModelState,
    Upload,
    UploadSession,
)
from control_plane.assets.storage import store
from control_plane.core.api.errors import or_not_found


def upload_for(caller: Caller, upload_id: str) -> Upload:
    return or_not_found(
        Upload.objects.filter(project=caller.project, pk=upload_id).first(), "upload", upload_id
    )


def state_of_validation(validation_id: str) -> str | None:
    """For who may see the validation already."""
    return DatasetValidation.objects.filter(pk=validation_id).values_list("state", flat=True).first()


def upload_session_for(caller: Caller, session_id: str) -> UploadSession:
    return or_not_found(
        UploadSession.objects.filter(project=caller.project, pk=session_id).select_related("upload").first(),
        "upload session",
        session_id,
    )


def validations(caller: Caller) -> QuerySet[DatasetValidation]:
    return DatasetValidation.objects.filter(project=caller.project).select_related("upload")


def validation_for(caller: Caller, validation_id: str) -> DatasetValidation:
    return or_not_found(validations(caller).filter(pk=validation_id).first(), "validation", validation_id)


def datasets(caller: Caller) -> QuerySet[Dataset]:
    return (
        Dataset.objects.filter(project=caller.project)
        .select_related("created_by")
        .prefetch_related("versions__dataset", "aliases__version")
    )


def dataset_for(caller: Caller, dataset_id: str) -> Dataset:
    return or_not_found(datasets(caller).filter(pk=dataset_id).first(), "dataset", dataset_id)


def versions(caller: Caller) -> QuerySet[DatasetVersion]:
    return DatasetVersion.objects.filter(dataset__project=caller.project).select_related("dataset")


def version_for(caller: Caller, version_id: str) -> DatasetVersion:
    return or_not_found(versions(caller).filter(pk=version_id).first(), "dataset version", version_id)


def find_version(caller: Caller, reference: str) -> DatasetVersion | None:
    """By id, `name@3`, `name@latest`, `name@alias`; a bare name means its latest version."""
    own = versions(caller)
    found = _find_numbered(own, reference, prefix="dsv_", name_field="dataset__name")
    if found is not None or "@" not in reference:
        return found
    name, alias = split_reference(reference)
    return own.filter(dataset__name=name, aliases__name=alias).first()


Numbered = TypeVar("Numbered", DatasetVersion, FunctionVersion)


def _find_numbered(
    own: QuerySet[Numbered], reference: str, *, prefix: str, name_field: str
) -> Numbered | None:
    """One of the numbered versions by its reference; an id has the prefix."""
    if reference.startswith(prefix):
        return own.filter(pk=reference).first()
    name, number = split_reference(reference)
    named = own.filter(**{name_field: name})
    if number == "latest":
        return named.order_by("-number").first()
    return named.filter(number=int(number)).first() if _is_number(number) else None


def split_reference(reference: str) -> tuple[str, str]:
    """`name@3` → name and "3"; a bare name means its latest version."""
    name, at, number = reference.rpartition("@")
    return (name, number) if at else (reference, "latest")


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def rows(version: DatasetVersion, *, after: int, limit: int) -> list[dict[str, Any]]:
    """Canonical rows `after`+1 .. of a version; `after` is -1 for the first page."""
    return list(_rows_from(version, after + 1, limit))


def _rows_from(version: DatasetVersion, first: int, limit: int) -> Iterator[dict[str, Any]]:
    if first >= version.rows:
        return
    with store.open_blob(version.sha256) as file:
        file.seek(version.offsets[first // OFFSET_STRIDE])
        for _ in range(first % OFFSET_STRIDE):
            file.readline()
        for _ in range(min(limit, version.rows - first)):
            yield json.loads(file.readline())


def models(caller: Caller) -> QuerySet[BaseModel]:
    return BaseModel.objects.filter(project=caller.project).select_related("same_as")


def model_for(caller: Caller, model_id: str) -> BaseModel:
    return or_not_found(models(caller).filter(pk=model_id).first(), "model", model_id)


def state_of_model(model_id: str) -> str | None:
    """For who may see the model already."""
    return BaseModel.objects.filter(pk=model_id).values_list("state", flat=True).first()


def find_model(caller: Caller, reference: str) -> BaseModel | None:
    """By id, `name@3`, `name@latest`; a bare name means its latest version, or what is not one yet."""
    own = models(caller)
    if reference.startswith("bm_"):
        found = own.filter(pk=reference).first()
        return found.same_as if found is not None and found.same_as is not None else found
    name, number = split_reference(reference)
    named = own.filter(name=name).exclude(state=ModelState.DUPLICATE)
    if number != "latest":
        return named.filter(number=int(number)).first() if _is_number(number) else None
    newest = F("number").desc(nulls_last=True), "-created_at", "-pk"
    return named.filter(state=ModelState.READY).order_by(*newest).first() or named.order_by(*newest).first()


def model_imports(caller: Caller) -> QuerySet[ModelImport]:
    return ModelImport.objects.filter(project=caller.project).select_related("model")


def model_import_for(caller: Caller, import_id: str) -> ModelImport:
    return or_not_found(model_imports(caller).filter(pk=import_id).first(), "import", import_id)


def functions(caller: Caller) -> QuerySet[Function]:
    return (
        Function.objects.filter(project=caller.project)
        .select_related("created_by")
        .prefetch_related("versions__function", "versions__created_by")
    )


def function_for(caller: Caller, function_id: str) -> Function:
    return or_not_found(functions(caller).filter(pk=function_id).first(), "function", function_id)


def function_versions(caller: Caller) -> QuerySet[FunctionVersion]:
    own = FunctionVersion.objects.filter(function__project=caller.project)
    return own.select_related("function", "created_by")


def function_version_for(caller: Caller, version_id: str) -> FunctionVersion:
    return or_not_found(
        function_versions(caller).filter(pk=version_id).first(), "function version", version_id
    )


def find_function_version(caller: Caller, reference: str) -> FunctionVersion | None:
    """By id, `name@3`, `name@latest`; a bare name means its latest version."""
    return _find_numbered(function_versions(caller), reference, prefix="fnv_", name_field="function__name")
