"""Every write of uploads in parts."""

from __future__ import annotations

from pathlib import Path

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.models import Upload, UploadSession
from control_plane.assets.services import limit_of
from control_plane.assets.storage import multipart, store, upload_lock
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found
from control_plane.core.infra.locks import LockClass, transaction_lock

MOST_OPEN_SESSIONS = 100  # of a project: each may hold as many bytes as its purpose allows


def begin_session(
    caller: Caller, *, filename: str, purpose: str, bytes: int, sha256: str = "", fingerprint: str = ""
) -> tuple[UploadSession, bool]:
    """A new session, or the caller's unfinished one for the same file, so that a client without memory resumes.

    The same file is one with the same announced sha256, or, where none was announced, the same fingerprint.
    Bytes that the project uploaded before need no second journey: the session is complete at once.
    """
    if bytes > limit_of(purpose):
        message = f"bytes={bytes}: an upload of purpose {purpose} has at most {limit_of(purpose)}"
        raise Problem(413, "too_large", message, errors=[FieldError("/bytes", "too_large", message)])
    key = {"sha256": sha256} if sha256 else {"fingerprint": fingerprint, "sha256": ""}
    with transaction.atomic():
        transaction_lock(LockClass.QUOTA, f"upload sessions {caller.project.pk}")
        if sha256 or fingerprint:
            open_one = UploadSession.objects.filter(
                project=caller.project, created_by=caller.user, purpose=purpose, bytes=bytes, upload=None, **key
            ).order_by("-pk").first()  # fmt: skip
            if open_one is not None:
                return open_one, False
        if open_sessions(caller.project.pk) >= MOST_OPEN_SESSIONS:
            raise conflict(
                "too_many",
                f"the project has {MOST_OPEN_SESSIONS} unfinished uploads; complete or abort one, or wait a day",
            )
        known = None
        if sha256 and store.has_blob(sha256):
            known = Upload.objects.filter(project=caller.project, purpose=purpose, sha256=sha256).first()
        session = UploadSession.objects.create(
            project=caller.project, created_by=caller.user, filename=Path(filename).name[:255] or "upload",
            purpose=purpose, bytes=bytes, sha256=sha256, fingerprint=fingerprint, upload=known,
        )  # fmt: skip
    return session, True


def open_sessions(project_id: str) -> int:
    return UploadSession.objects.filter(project=project_id, upload=None).count()


def put_part(session: UploadSession, number: int, data: bytes, *, sha256: str | None) -> None:
    if session.upload is not None:
        raise conflict(
            "upload_complete", f"upload session {session.pk} is complete; nothing more can be sent"
        )
    multipart.put_part(session.pk, session.bytes, number, data, sha256=sha256)
    if not UploadSession.objects.filter(pk=session.pk, upload=None).exists():
        store.drop_parts(session.pk)  # it came too late: nobody would ever join it
        raise multipart.missing_error(session.pk)


def complete_session(session: UploadSession) -> Upload:
    """The upload that the parts make. Asked again, the same upload."""
    if session.upload is not None:
        return session.upload
    with upload_lock.exclusive(session.pk):
        blob, refusal = multipart.try_join(session.pk, session.bytes, sha256=session.sha256)
        with store.delete_on_rollback(blob.sha256), transaction.atomic():
            session = _held(session)
            if session.upload is not None:
                return session.upload
            if refusal is not None:
                raise refusal
            store.lock_blob(blob.sha256)
            session.upload = Upload.objects.create(
                project=session.project, created_by=session.created_by, filename=session.filename,
                purpose=session.purpose, bytes=blob.bytes, sha256=blob.sha256,
            )  # fmt: skip
            session.save(update_fields=["upload"])
            transaction.on_commit(lambda: store.drop_parts(session.pk))
    return session.upload


def abort_session(session: UploadSession) -> None:
    """Forget an unfinished session and its parts."""
    with transaction.atomic():
        held = _held(session)
        if held.upload is not None:
            raise conflict(
                "upload_complete", f"upload session {held.pk} is complete; there is nothing to abort"
            )
        held.delete()
    store.drop_parts(session.pk)


def _held(session: UploadSession) -> UploadSession:
    """The session, which nobody else completes or aborts until the caller's transaction ends."""
    found = UploadSession.objects.select_for_update(of=("self",)).filter(pk=session.pk)
    return or_not_found(
        found.select_related("project", "created_by", "upload").first(), "upload session", session.pk
    )
