"""Every write of functions: versioned source of users."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from django.db import transaction
from django.db.models import Max

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.identity.services import note_project
from control_plane.assets.functions.function_references import references_to
from control_plane.assets.functions.function_source import read_source
from control_plane.assets.models import Function, FunctionVersion
from control_plane.assets.storage import store
from control_plane.core.api.errors import conflict, unprocessable
from oolong.contracts.user_code import SourceKind


def upload_function(
    caller: Caller, *, name: str, kind: SourceKind, source: str, description: str = ""
) -> tuple[FunctionVersion, bool]:
    """The next version of a function, which is made if need be, or the version that has this source already.

    422 with the line of every fault; 409 when the name belongs to another kind, or to an archived function. A loss runs
    only in pools that allow trainer_code, which is checked when a run names it.
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
        function = Function.objects.select_for_update().get(pk=function.pk)
        if function.archived_at is not None:
            raise conflict(
                "archived", f"{name!r} is archived; restore it, or take another name", id=function.pk
            )
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


def set_archived(caller: Caller, function: Function, archived: bool, *, now: datetime) -> Function:
    """Hide the function from lists, or show it again. What names one of its versions still runs."""
    with transaction.atomic():
        held = Function.objects.select_for_update().get(pk=function.pk)
        if archived == (held.archived_at is not None):
            return held
        held.archived_at = now if archived else None
        held.save(update_fields=["archived_at"])
        note_project(
            caller, "function_archived" if archived else "function_restored",
            f"function {held.name} {'archived' if archived else 'restored'}", now=now,
            data={"function": held.pk, "name": held.name},
        )  # fmt: skip
    return held


def delete_function(caller: Caller, function: Function, *, now: datetime) -> None:
    """Delete the function with all its versions. 409 that names the runs and specs which refer to it."""
    with transaction.atomic():
        held = Function.objects.select_for_update().get(pk=function.pk)
        versions = list(held.versions.select_for_update().order_by("pk"))
        if references := references_to(held):
            raise conflict(
                "in_use",
                f"{held.name!r} is named by {'; '.join(references)}. It stays for their history: archive it instead",
            )
        note_project(
            caller, "function_deleted", f"function {held.name} deleted", now=now,
            data={"function": held.pk, "name": held.name, "sha256": [version.sha256 for version in versions]},
        )  # fmt: skip
        held.delete()
        for version in versions:
            store.delete_on_commit(version.sha256)


def hold_versions(versions: Collection[FunctionVersion]) -> bool:
    """Whether all of them exist, and stay until the caller's transaction ends."""
    ids = {version.pk for version in versions}
    found = FunctionVersion.objects.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk")
    return len(found) == len(ids)
