"""`Idempotency-Key`: the same key and body get the first answer again; another body is refused (24 hours)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import Any

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.common.errors import Problem
from control_plane.common.models import IdempotencyKey

KEPT = timedelta(hours=24)


def idempotent(view: Callable[..., Response]) -> Callable[..., Response]:
    """Decorate a DRF POST handler. The work and the remembered answer commit together."""

    @wraps(view)
    def wrapped(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
        key = request.headers.get("Idempotency-Key", "")
        if not key:
            return view(self, request, *args, **kwargs)
        if len(key) > 255:
            raise Problem(422, "invalid", "Idempotency-Key is longer than 255 characters")
        digest = hashlib.sha256(f"{request.method} {request.path}\n".encode() + request.body).hexdigest()
        with transaction.atomic():
            record, first = IdempotencyKey.objects.select_for_update().get_or_create(
                caller=request.user.pk, key=key, defaults={"request_sha256": digest}
            )
            if record.request_sha256 != digest:
                raise Problem(
                    422, "idempotency_mismatch", f"Idempotency-Key {key!r} was used with another request"
                )
            if not first and record.status is not None:
                return Response(record.body, status=record.status, headers={"Idempotent-Replayed": "true"})
            response = view(self, request, *args, **kwargs)
            record.status, record.body = response.status_code, response.data
            record.save(update_fields=["status", "body"])
            return response

    return wrapped


def forget_old_keys(now: datetime) -> int:
    return IdempotencyKey.objects.filter(created_at__lt=now - KEPT).delete()[0]
