"""Every write of functions: versioned source of users."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Max

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.functions.function_source import read_source
from control_plane.assets.models import Function, FunctionVersion
from control_plane.assets.storage import store
from control_plane.core.api.errors import conflict, unprocessable
from oolong.contracts.user_code import SourceKind


def upload_function(
    caller: Caller, *, name: str, kind: SourceKind, source: str, description: str = ""
) -> tuple[FunctionVersion, bool]:
    """The next version of a function, which is made if need be, or the version that has this source already.

    422 with the line of every fault; 409 when the name belongs to another kind. A loss runs only in pools that allow
    trainer_code, which is checked when a run names it.
    """
    facts = read_source(kind, source)
    if facts.errors:
        raise unprocessable("source_invalid", facts.errors[0].message, facts.errors)
    blob = store.put([source.encode()])
    with transaction.atomic():
        store.lock_blob(blob.sha256)
        function, _ = Function.objects.get_or_create(
            project=caller.project, name=name,
            defaults={"kind": kind, "description": description, "created_by": caller.user},
        )  # fmt: skip
        Function.objects.select_for_update().get(pk=function.pk)
        if function.kind != kind:
            raise conflict(
                "name_taken", f"{name!r} is a {function.kind} already; take another name", id=function.pk
            )
        existing = function.versions.filter(sha256=blob.sha256).select_related("function").first()
        if existing is not None:
            return existing, False
        newest = function.versions.aggregate(newest=Max("number"))["newest"] or 0
        version = FunctionVersion.objects.create(
            function=function, number=newest + 1, sha256=blob.sha256, bytes=blob.bytes, options=facts.options,
            any_option=facts.any_option, created_by=caller.user,
        )  # fmt: skip
    return version, True
