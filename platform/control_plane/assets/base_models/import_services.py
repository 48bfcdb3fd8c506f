"""Every write of imports from a hub: asked for, taken by a node, reported, stored, given up."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Team
from control_plane.accounts.secrets.secret_services import missing, reveal_for_host
from control_plane.assets import services
from control_plane.assets.base_models import model_services
from control_plane.assets.models import ImportState, ModelImport
from control_plane.assets.storage import multipart, store, upload_lock
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found, unprocessable
from control_plane.core.infra import clock
from control_plane.core.infra.locks import LockClass, transaction_lock
from oolong.contracts.agent import UploadReply
from oolong.contracts.model_imports import ImportOrder, ImportProgress

SILENCE = timedelta(minutes=5)  # after which another node may have it
MOST_TRIES = 3
MOST_OPEN = 20  # of a project
OPEN = (ImportState.QUEUED, ImportState.RUNNING)  # for nodes
ON_ITS_WAY = (*OPEN, ImportState.CHECKING)
COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_MODEL = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def request_import(
    caller: Caller, *, name: str, hub_model: str, revision: str, secret: str
) -> tuple[ModelImport, bool]:
    """Queue it for the next node that has time, or the import of the same that is on its way."""
    hub = settings.ENVIRONMENT.hub_url
    if not hub:
        raise conflict("no_hub", "no hub is configured; whoever runs the control plane sets OOLONG_HUB_URL")
    if not HUB_MODEL.fullmatch(hub_model) or ".." in hub_model:
        message = f"model={hub_model!r}: owner/name, as the hub has it"
        raise unprocessable("invalid", message, [FieldError("/model", "malformed", message)])
    if secret and missing(caller.project.pk, [secret]):
        message = (
            f"the project has no secret {secret}; set it: oolong secret set {secret} --host {_host(hub)}"
        )
        raise unprocessable("unknown_secret", message, [FieldError("/secret", "unknown_secret", message)])
    asked = {
        "project": caller.project, "name": name, "hub": hub, "hub_model": hub_model, "revision": revision,
        "secret": secret,
    }  # fmt: skip
    with transaction.atomic():
        transaction_lock(LockClass.QUOTA, f"imports {caller.project.pk}")
        if (found := ModelImport.objects.filter(**asked, state__in=ON_ITS_WAY).first()) is not None:
            return found, False
        if ModelImport.objects.filter(project=caller.project, state__in=ON_ITS_WAY).count() >= MOST_OPEN:
            raise conflict(
                "too_many", f"{MOST_OPEN} imports of this project are on their way; wait for one to end"
            )
        return ModelImport.objects.create(**asked, created_by=caller.user), True


def cancel_import(asked: ModelImport, *, now: datetime) -> ModelImport:
    """409 when it has ended. Its node hears of it when it next speaks of it."""
    if not _end(asked, ImportState.CANCELLED, "cancelled", now=now):
        asked.refresh_from_db()
        raise conflict("has_ended", f"import {asked.pk} is {asked.state}; there is nothing to cancel")
    asked.refresh_from_db()
    return asked


def imports_for(node_id: str, teams: QuerySet[Team], *, takes_work: bool) -> list[str]:
    """What a node receives at its heartbeat: its own imports, else the oldest that waits for a node. `teams`:
    those that may use the node; it gets nothing of others."""
    allowed = ModelImport.objects.filter(project__team__in=teams).order_by("pk")
    own = list(allowed.filter(node_id=node_id, state=ImportState.RUNNING).values_list("pk", flat=True))
    if own or not takes_work:
        return own
    return list(allowed.filter(state=ImportState.QUEUED).values_list("pk", flat=True)[:1])


def begin(
    node_id: str, import_id: str, teams: QuerySet[Team], *, takes_work: bool, now: datetime
) -> ImportOrder:
    """The import is now this node's. 404 when another has it or the team may not use the node, 409 when it has ended or
    the node takes nothing new."""
    waiting = Q(state=ImportState.QUEUED) | Q(state=ImportState.RUNNING, node_id=node_id)
    with transaction.atomic():
        asked = (
            ModelImport.objects.select_for_update(of=("self",))
            .filter(waiting, pk=import_id, project__team__in=teams)
            .first()
        )
        if asked is None:
            held_by(node_id, import_id)  # says why
            raise conflict("stale_epoch", f"import {import_id} has changed at this very moment")
        if asked.state == ImportState.QUEUED:
            if not takes_work:
                raise conflict(
                    "stale_epoch", f"this node takes nothing new, so not import {import_id} either"
                )
            asked.tries += 1
        asked.state, asked.node_id, asked.touched_at = ImportState.RUNNING, node_id, now
        asked.save(update_fields=["state", "node_id", "touched_at", "tries"])
    token = ""
    if asked.secret:
        try:
            token = reveal_for_host(asked.project_id, asked.secret, url=asked.hub, now=now)
        except Problem as refusal:
            _end(asked, ImportState.FAILED, refusal.detail, now=now)
            raise conflict("stale_epoch", f"import {import_id} cannot go on: {refusal.detail}") from refusal
    return ImportOrder(
        import_id=asked.pk, endpoint=asked.hub, model=asked.hub_model, revision=asked.revision, token=token
    )


def report(node_id: str, import_id: str, progress: ImportProgress, *, now: datetime) -> None:
    asked = held_by(node_id, import_id)
    ModelImport.objects.filter(pk=asked.pk, state=ImportState.RUNNING, node_id=node_id).update(
        bytes_done=progress.bytes_done, bytes_total=progress.bytes_total, touched_at=now
    )


def fail(node_id: str, import_id: str, message: str, *, now: datetime) -> None:
    _end(held_by(node_id, import_id), ImportState.FAILED, message, now=now)


def begin_upload(
    node_id: str, import_id: str, *, commit: str, tar_sha256: str, bytes: int, now: datetime
) -> UploadReply:
    asked = held_by(node_id, import_id)
    _check_commit(asked, commit, now=now)
    if bytes > services.limit_of("model"):
        raise Problem(413, "too_large", f"a model has at most {services.limit_of('model')} bytes")
    if asked.tar_sha256 not in ("", tar_sha256):
        store.drop_parts(asked.pk)  # another node had begun to send other bytes
    ModelImport.objects.filter(pk=asked.pk).update(
        commit=commit, tar_sha256=tar_sha256, tar_bytes=bytes, touched_at=now
    )
    return UploadReply(
        upload_id=asked.pk, part_bytes=multipart.size_for(bytes), received_parts=store.received_parts(asked.pk),
        stored=False,
    )  # fmt: skip


def _check_commit(asked: ModelImport, commit: str, *, now: datetime) -> None:
    """The model's origin names it. What is not the commit that was asked for would not become so by fetching again."""
    message = ""
    if not COMMIT.fullmatch(commit):
        message = f"commit={commit!r}: 40 hexadecimal digits, as the hub has it"
    elif COMMIT.fullmatch(asked.revision.lower()) and commit != asked.revision.lower():
        message = f"commit={commit!r}: revision {asked.revision} was asked for, which is itself a commit"
    if message:
        _end(asked, ImportState.FAILED, message, now=now)
        raise unprocessable("invalid", message, [FieldError("/commit", "wrong_commit", message)])


def put_part(
    node_id: str, import_id: str, number: int, data: bytes, *, sha256: str | None, now: datetime
) -> None:
    asked = held_by(node_id, import_id)
    multipart.put_part(asked.pk, asked.tar_bytes, number, data, sha256=sha256)
    ModelImport.objects.filter(pk=asked.pk).update(touched_at=now)


def complete(node_id: str, import_id: str) -> ModelImport:
    """Join and verify; its files are checked from now on as those of an upload are."""
    held_by(node_id, import_id)
    with upload_lock.exclusive(import_id):
        return _complete(held_by(node_id, import_id))  # it may have ended while we asked for our turn


def _complete(asked: ModelImport) -> ModelImport:
    blob = multipart.join(asked.pk, asked.tar_bytes, sha256=asked.tar_sha256)
    # Joining takes long, and so does what follows; no tick may find the import silent between them.
    ModelImport.objects.filter(pk=asked.pk, state=ImportState.RUNNING, node_id=asked.node_id).update(
        touched_at=clock.now()
    )
    origin = f"{asked.hub}/{asked.hub_model}@{asked.commit}"
    with store.delete_on_rollback(blob.sha256), transaction.atomic():
        # These bytes are what it asked for, even if a tick has queued it for another node.
        waiting = ModelImport.objects.filter(pk=asked.pk, state__in=OPEN, tar_sha256=asked.tar_sha256)
        if waiting.update(
            state=ImportState.CHECKING,
            node_id=asked.node_id,
            bytes_done=asked.bytes_total,
            touched_at=clock.now(),
        ):
            model = model_services.register_import(asked, archive=blob, origin=origin)
            ModelImport.objects.filter(pk=asked.pk).update(model=model)
            transaction.on_commit(lambda: store.drop_parts(asked.pk))
        else:
            store.delete_on_commit(blob.sha256)  # it was canceled during the upload
    asked.refresh_from_db()
    return asked


def advance_imports(*, now: datetime) -> None:
    """One tick: what a node has been silent about is for another one, a few times. Safe to lose and to repeat."""
    silent = ModelImport.objects.filter(state=ImportState.RUNNING, touched_at__lt=now - SILENCE)
    for asked in silent.filter(tries__gte=MOST_TRIES):
        _end(asked, ImportState.FAILED, f"{asked.tries} nodes took it and fell silent", now=now)
    silent.filter(tries__lt=MOST_TRIES).update(state=ImportState.QUEUED, node_id="")


def held_by(node_id: str, import_id: str) -> ModelImport:
    """404 when it is no import of this node, or another's now; 409 when it has ended."""
    own = ModelImport.objects.select_related("project", "created_by").filter(pk=import_id, node_id=node_id)
    asked = or_not_found(own.first(), "import", import_id)
    if asked.state != ImportState.RUNNING:
        raise conflict("stale_epoch", f"import {import_id} is {asked.state}")
    return asked


def _end(asked: ModelImport, state: ImportState, message: str, *, now: datetime) -> bool:
    ended = ModelImport.objects.filter(pk=asked.pk, state__in=OPEN).update(
        state=state, message=message[:2000].replace("\x00", "\ufffd"), ended_at=now
    )
    if ended:
        store.drop_parts(asked.pk)
    return bool(ended)


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].partition(":")[0]
