"""Saved views of the run list: a name for what one looks for, kept to oneself or shared with the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found, unprocessable
from control_plane.core.infra.clock import rfc3339
from control_plane.core.infra.locks import LockClass, hold_until_commit
from control_plane.experiments.models import SavedView
from control_plane.runs.search import read_search

MOST_VIEWS = 200  # of one user in a project


def views(caller: Caller) -> QuerySet[SavedView]:
    own = Q(owner=caller.user) | Q(shared=True)
    return SavedView.objects.filter(own, project=caller.project).select_related("owner")


def view_for(caller: Caller, view_id: str) -> SavedView:
    return or_not_found(views(caller).filter(pk=view_id).first(), "view", view_id)


def create_view(
    caller: Caller, *, name: str, query: Mapping[str, Any], shared: bool = False, now: datetime
) -> SavedView:
    words = _words(query)
    try:
        with transaction.atomic():
            hold_until_commit(LockClass.QUOTA, f"views {caller.project.pk} {caller.user.pk}")
            if SavedView.objects.filter(project=caller.project, owner=caller.user).count() >= MOST_VIEWS:
                raise conflict("too_many", f"you have {MOST_VIEWS} views already; delete one first")
            return SavedView.objects.create(
                project=caller.project, owner=caller.user, name=name, query=words, shared=shared, created_at=now,
                updated_at=now,
            )  # fmt: skip
    except IntegrityError as error:
        raise conflict("name_taken", f"you have a view {name!r} already") from error


def update_view(caller: Caller, view_id: str, fields: Mapping[str, Any], *, now: datetime) -> SavedView:
    view = _own(caller, view_id)
    changed = {
        **fields,
        **({"query": _words(fields["query"])} if "query" in fields else {}),
        "updated_at": now,
    }
    for name, value in changed.items():
        setattr(view, name, value)
    try:
        with transaction.atomic():
            view.save(update_fields=list(changed))
    except IntegrityError as error:
        raise conflict("name_taken", f"you have a view {view.name!r} already") from error
    return view


def delete_view(caller: Caller, view_id: str) -> None:
    _own(caller, view_id).delete()


def view_as_json(view: SavedView) -> dict[str, Any]:
    return {
        "id": view.pk, "name": view.name, "query": view.query, "shared": view.shared, "owner": view.owner.username,
        "created_at": rfc3339(view.created_at), "updated_at": rfc3339(view.updated_at),
    }  # fmt: skip


def _own(caller: Caller, view_id: str) -> SavedView:
    view = view_for(caller, view_id)
    if view.owner_id != caller.user.pk:
        raise Problem(
            403, "not_owner", f"view {view.name!r} is {view.owner.username}'s; save one of your own"
        )
    return view


def _words(query: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """As the list's own parameters: a text, or several. 422 when the list would refuse them."""
    words: dict[str, Sequence[str]] = {}
    for name, value in query.items():
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in values):
            message = f"{name}={value!r}: a text, or a list of texts"
            raise unprocessable("invalid", message, [FieldError(f"/query/{name}", "invalid", message)])
        words[name] = values
    try:
        read_search(words)
    except Problem as problem:
        errors = [FieldError(f"/query{fault.pointer}", fault.code, fault.message) for fault in problem.errors]
        raise unprocessable(problem.code, problem.detail, errors) from problem
    return words
