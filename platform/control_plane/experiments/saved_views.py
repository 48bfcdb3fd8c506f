"""Saved views: named queries of the run list, private or shared with the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.core.api.errors import FieldError, Problem, conflict, or_not_found, unprocessable
from control_plane.core.infra.locks import LockClass, transaction_lock
from control_plane.experiments.models import SavedView
from control_plane.runs.search import parse_search

MAX_VIEWS = 200  # of one user in a project


def views(caller: Caller) -> QuerySet[SavedView]:
    own = Q(owner=caller.user) | Q(shared=True)
    return SavedView.objects.filter(own, project=caller.project).select_related("owner")


def view_for(caller: Caller, view_id: str) -> SavedView:
    return or_not_found(views(caller).filter(pk=view_id).first(), "view", view_id)


def create_view(
    caller: Caller,
    *,
    name: str,
    query: Mapping[str, Any],
    shared: bool = False,
    columns: Sequence[str] | None = None,
    now: datetime,
) -> SavedView:
    params = _parse_query(query)
    try:
        with transaction.atomic():
            transaction_lock(LockClass.QUOTA, f"views {caller.project.pk} {caller.user.pk}")
            if SavedView.objects.filter(project=caller.project, owner=caller.user).count() >= MAX_VIEWS:
                raise conflict("too_many", f"you have {MAX_VIEWS} views; delete one first")
            return SavedView.objects.create(
                project=caller.project, owner=caller.user, name=name, query=params, shared=shared, columns=columns,
                created_at=now, updated_at=now,
            )  # fmt: skip
    except IntegrityError as error:
        raise conflict("name_taken", f"you already have a view {name!r}") from error


def update_view(caller: Caller, view_id: str, fields: Mapping[str, Any], *, now: datetime) -> SavedView:
    view = _own(caller, view_id)
    changed = {
        **fields,
        **({"query": _parse_query(fields["query"])} if "query" in fields else {}),
        "updated_at": now,
    }
    for name, value in changed.items():
        setattr(view, name, value)
    try:
        with transaction.atomic():
            view.save(update_fields=list(changed))
    except IntegrityError as error:
        raise conflict("name_taken", f"you already have a view {view.name!r}") from error
    return view


def delete_view(caller: Caller, view_id: str) -> None:
    _own(caller, view_id).delete()


def _own(caller: Caller, view_id: str) -> SavedView:
    view = view_for(caller, view_id)
    if view.owner_id != caller.user.pk:
        raise Problem(
            403, "not_owner", f"view {view.name!r} belongs to {view.owner.username}; save your own copy"
        )
    return view


def _parse_query(query: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Validated query parameters. 422 when the run list would reject them."""
    params: dict[str, Sequence[str]] = {}
    for name, value in query.items():
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in values):
            message = f"{name}={value!r}: a string or a list of strings"
            raise unprocessable("invalid", message, [FieldError(f"/query/{name}", "invalid", message)])
        params[name] = values
    try:
        parse_search(params)
    except Problem as problem:
        errors = [FieldError(f"/query{fault.pointer}", fault.code, fault.message) for fault in problem.errors]
        raise unprocessable(problem.code, problem.detail, errors) from problem
    return params
