"""`Idempotency-Key`: the same key and body get the first answer again; another body is refused (24 hours)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.conf import settings
from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.core.api.errors import Problem
from control_plane.core.api.schema import LONGEST_IDEMPOTENCY_KEY
from control_plane.core.models import IdempotencyKey
from control_plane.core.security import encryption

KEPT = timedelta(hours=24)
SECRET_PLACE = "answer to an Idempotency-Key"


def idempotent(view: Callable[..., Response] | None = None, *, secret: bool = False) -> Callable[..., Any]:
    """Decorate a DRF POST handler. The work and the remembered answer commit together.

    With `secret` the answer holds something that is shown once (a token): it is kept sealed.
    """
    if view is None:
        return lambda decorated: idempotent(decorated, secret=secret)

    @wraps(view)
    def wrapped(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = request.headers.get("Idempotency-Key", "")
        if not key:
            return view(self, request, *args, **kwargs)
        if len(key) > LONGEST_IDEMPOTENCY_KEY:
            raise Problem(
                422,
                "invalid",
                f"Idempotency-Key has {len(key)} characters; {LONGEST_IDEMPOTENCY_KEY} at most",
            )
        digest = _digest(request)
        with transaction.atomic():
            record, first = IdempotencyKey.objects.select_for_update().get_or_create(
                caller=request.user.pk, key=key, defaults={"request_sha256": digest}
            )
            if record.request_sha256 != digest:
                raise Problem(
                    422, "idempotency_mismatch", f"Idempotency-Key {key!r} was used with another request"
                )
            if not first and record.status is not None:
                answer = _opened(record.body or {}) if secret else record.body
                return Response(answer, status=record.status, headers={"Idempotent-Replayed": "true"})
            response = view(self, request, *args, **kwargs)
            record.status, record.body = response.status_code, response.data
            if secret:
                record.body = _sealed(response.data)
            record.save(update_fields=["status", "body"])
            return response

    wrapped.idempotent = True  # type: ignore[attr-defined]  # for the schema, and for the test that asks every POST
    return wrapped


def prune_keys(now: datetime) -> int:
    return IdempotencyKey.objects.filter(created_at__lt=now - KEPT).delete()[0]


def _digest(request: Request) -> str:
    """Keyed, because a body may be a password that a plain hash would let guess.

    Of the project, too: a browser's user may send the same to two of theirs. And of the token: an answer may hold what
    another token of the same user was not allowed to get.
    """
    project = getattr(getattr(request.auth, "project", None), "pk", "")
    token = getattr(getattr(request.auth, "token", None), "pk", "")
    said = f"{request.method} {request.path} {project} {token}\n".encode() + request.body
    return hmac.new(settings.SECRET_KEY.encode(), said, hashlib.sha256).hexdigest()


def _sealed(document: Any) -> dict[str, str]:
    sealed = encryption.encrypt(json.dumps(document), place=SECRET_PLACE)
    return {"key_id": sealed.key_id, "sealed": base64.b64encode(sealed.sealed).decode()}


def _opened(body: dict[str, str]) -> Any:
    sealed = encryption.Sealed(body["key_id"], base64.b64decode(body["sealed"]))
    return json.loads(encryption.decrypt(sealed, place=SECRET_PLACE))
