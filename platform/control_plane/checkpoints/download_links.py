"""Signed addresses that fetch a checkpoint without a token, with the power of who made them at the moment of use."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.core import signing

from control_plane.accounts.audit import audit_log
from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.selectors import caller_again
from control_plane.checkpoints.models import Checkpoint
from control_plane.core.api.errors import Problem, not_found, or_not_found

SALT = "checkpoint-download-2"
NEEDED = "checkpoints:read"


def make_link(caller: Caller, checkpoint: Checkpoint, *, seconds: int, now: datetime) -> tuple[str, datetime]:
    """A signed path, and until when it works: never longer than the token with which it was made."""
    expires_at = now + timedelta(seconds=seconds)
    if caller.token is not None and caller.token.expires_at is not None:
        expires_at = min(expires_at, caller.token.expires_at)
    audit_log.record(
        "checkpoint.link", target=("checkpoint", checkpoint.pk), project=checkpoint.project_id, at=now,
        data={"expires_at": expires_at.isoformat()},
    )  # fmt: skip
    maker = [str(caller.user.pk), caller.token.pk if caller.token else ""]
    text = signing.dumps([checkpoint.pk, int(expires_at.timestamp()), *maker], salt=SALT)
    return f"/api/v1/checkpoint-downloads/{text}", expires_at


def checkpoint_of_link(text: str, *, now: datetime) -> Checkpoint:
    """404 for a link that is not ours, 410 for one that has expired, or whose maker may not read it any more."""
    try:
        checkpoint_id, expires, user_id, token_id = signing.loads(text, salt=SALT)
    except signing.BadSignature as error:
        raise not_found("download link", text[:20]) from error
    if now.timestamp() > expires:
        raise Problem(410, "link_expired", "this download link has expired; ask for another")
    checkpoint = or_not_found(
        Checkpoint.objects.filter(pk=checkpoint_id).select_related("project__team").first(),
        "checkpoint",
        checkpoint_id,
    )
    maker = caller_again(user_id, checkpoint.project, token_id=token_id)
    if maker is None or NEEDED not in maker.scopes:
        raise Problem(
            410, "link_revoked",
            "who made this download link may not read the checkpoint any more; ask somebody who may for another",
        )  # fmt: skip
    return checkpoint
