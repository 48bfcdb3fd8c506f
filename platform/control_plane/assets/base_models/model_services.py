"""Every write of base models: registered by a door, settled by what their check found, removed."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePosixPath

import msgspec
from django.db import transaction
from django.db.models import Max, ProtectedError, Q

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Project, User
from control_plane.assets.background.fair_queue import refuse_too_many_checks
from control_plane.assets.base_models import model_roots
from control_plane.assets.datasets import rows
from control_plane.assets.models import (
    BaseModel,
    CheckState,
    ImportState,
    ModelCheck,
    ModelImport,
    ModelState,
    Upload,
)
from control_plane.assets.storage import store
from control_plane.core.api.errors import FieldError, conflict, unprocessable
from oolong.contracts.model_paths import faults_of_path, root_of
from oolong.contracts.model_report import ModelReport


def register_upload(caller: Caller, *, name: str, upload: Upload) -> tuple[BaseModel, bool]:
    """A model whose archive is checked from now on, or the one that these very bytes are under this name already."""
    same = BaseModel.objects.filter(
        project=caller.project, name=name, state__in=[ModelState.VALIDATING, ModelState.READY],
        model_check__archive_sha256=upload.sha256,
    )  # fmt: skip
    if (found := same.order_by("-pk").first()) is not None:
        return found, False
    return _validating(
        caller.project, caller.user, name=name, source="upload", archive_sha256=upload.sha256
    ), True


def register_import(asked: ModelImport, *, archive: store.Blob, origin: str) -> BaseModel:
    """What a node has fetched, to be checked as every upload is."""
    return _validating(
        asked.project, asked.created_by, name=asked.name, source="hub", origin=origin, archive_sha256=archive.sha256
    )  # fmt: skip


def register_path(caller: Caller, *, name: str, path: str) -> tuple[BaseModel, bool]:
    """A model that a node will look at, or the one that is being looked at. 422 where no node offers the path."""
    if fault := faults_of_path(path):
        message = f"path={path[:200]!r}: {fault}"
        raise unprocessable("invalid", message, [FieldError("/path", "not_absolute", message)])
    path = str(PurePosixPath(path))
    offered = model_roots.offered(caller.project)
    if root_of(path, offered) is None:
        shown = ", ".join(sorted(offered)[:10]) or "none; a node offers one by --model-root"
        message = f"no node offers the directory {path!r}; offered are: {shown}"
        raise unprocessable("path_not_offered", message, [FieldError("/path", "path_not_offered", message)])
    open_one = BaseModel.objects.filter(
        project=caller.project, name=name, path=path, state=ModelState.VALIDATING
    )
    if (found := open_one.first()) is not None:
        return found, False
    return _validating(caller.project, caller.user, name=name, source="path", path=path), True


def _validating(
    project: Project,
    user: User,
    *,
    name: str,
    source: str,
    path: str = "",
    origin: str = "",
    archive_sha256: str = "",
) -> BaseModel:
    with transaction.atomic():
        if source != "hub":  # which has a bound of its own, and has come all the way
            refuse_too_many_checks(project)
        if archive_sha256:
            store.lock_blob(archive_sha256)
        model = BaseModel.objects.create(
            project=project, created_by=user, name=name, source=source, origin=origin, path=path,
            state=ModelState.VALIDATING,
        )  # fmt: skip
        ModelCheck.objects.create(model=model, archive_sha256=archive_sha256, path=path)
        if path:
            model_roots.ring(path)
    return model


def finalize(check: ModelCheck, report: ModelReport, *, now: datetime) -> None:
    """The model is READY as the next version of its name, a DUPLICATE of one that is, or INVALID. Once."""
    # What it quotes of the files may hold what no database takes.
    document = rows.presentable(msgspec.to_builtins(report), depth=60)
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(
            pk=check.model.project_id
        )  # numbers are given in turn
        open_ones = ModelCheck.objects.filter(pk=check.pk).exclude(state=CheckState.ENDED)
        if not open_ones.update(state=CheckState.ENDED, ended_at=now):
            return
        model = BaseModel.objects.select_related("same_as").get(pk=check.model_id)
        config = document.pop("config")
        model.report, model.message = document, document["message"][:2000]
        model.family, model.parameters = document["family"][:60], report.parameters or None
        model.config, model.manifest_sha256 = config, report.manifest_sha256
        twin = None if report.faults else _twin(model, report)
        for sha256 in filter(None, (check.archive_sha256, report.tar_sha256)):
            store.delete_on_commit(
                sha256
            )  # unless it is named: by its upload, or by the model that it is now
        if report.faults or report.message:
            model.state = ModelState.INVALID
        elif twin is not None:
            model.state, model.same_as, model.report = ModelState.DUPLICATE, twin, None
        else:
            if report.tar_sha256:
                store.lock_blob(report.tar_sha256)
            newest = BaseModel.objects.filter(project=model.project_id, name=model.name).aggregate(
                newest=Max("number")
            )
            model.state, model.number = ModelState.READY, (newest["newest"] or 0) + 1
            model.sha256 = report.tar_sha256
            model.bytes = report.tar_bytes or sum(file.bytes for file in report.files)
        model.save()
        of_hub = ModelImport.objects.filter(model=model, state=ImportState.CHECKING)
        if model.state == ModelState.INVALID:
            of_hub.update(state=ImportState.FAILED, message=model.message, ended_at=now)
        else:
            of_hub.update(state=ImportState.DONE, model=twin or model, ended_at=now)


def _twin(model: BaseModel, report: ModelReport) -> BaseModel | None:
    """The version of this name that the same files are already."""
    same = Q(manifest_sha256=report.manifest_sha256)
    if report.tar_sha256:
        same |= Q(sha256=report.tar_sha256)
    ready = BaseModel.objects.filter(
        same, project=model.project_id, name=model.name, path=model.path, state=ModelState.READY
    )
    return ready.order_by("number").first()


def remove(model: BaseModel) -> None:
    """Forget one that is no model, or that no node has looked at yet. 409 for what runs may start from, or what is
    being checked."""
    with transaction.atomic():
        Project.objects.select_for_update(no_key=True).get(pk=model.project_id)  # in the order of `finalize`
        found = BaseModel.objects.select_for_update(of=("self",)).filter(pk=model.pk).first()
        if found is None:
            return
        waits = found.state == ModelState.VALIDATING and _is_waiting_for_a_node(found)
        if not waits and found.state not in (ModelState.INVALID, ModelState.DUPLICATE):
            raise conflict(
                "in_use",
                f"model {found.pk} is {found.state}; only what is INVALID, DUPLICATE or waits for a node is removed",
            )
        try:
            found.delete()
        except ProtectedError as error:
            raise conflict(
                "in_use", f"model {found.pk} is named by runs, and stays in their history"
            ) from error


def _is_waiting_for_a_node(model: BaseModel) -> bool:
    """No node begins it before the caller's transaction ends."""
    return (
        ModelCheck.objects.select_for_update()
        .filter(model=model, archive_sha256="", state=CheckState.QUEUED)
        .exists()
    )
