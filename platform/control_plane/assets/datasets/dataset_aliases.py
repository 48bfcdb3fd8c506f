"""Every write of dataset aliases: names that mean one version at a time."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.identity.services import note_project
from control_plane.assets.models import Dataset, DatasetAlias, DatasetVersion
from control_plane.core.api.errors import FieldError, conflict, or_not_found, unprocessable

MOST_ALIASES = 50


def set_alias(
    caller: Caller,
    dataset: Dataset,
    name: str,
    version: DatasetVersion,
    *,
    expected: int | None = None,
    now: datetime,
) -> DatasetAlias:
    """Let `dataset@name` mean this version. It moves; runs that were started keep what they pinned.

    422 for a version of another dataset; 409 when `expected` was given and the alias means another number.
    """
    if version.dataset_id != dataset.pk:
        message = f"{version.ref} is no version of {dataset.name!r}"
        raise unprocessable("invalid", message, [FieldError("/version", "other_dataset", message)])
    with transaction.atomic():
        Dataset.objects.select_for_update().get(pk=dataset.pk)
        alias = DatasetAlias.objects.filter(dataset=dataset, name=name).select_related("version").first()
        before = alias.version.number if alias else None
        if expected is not None and before != expected:
            raise conflict(
                "alias_moved", f"{dataset.name}@{name} means {before or 'nothing'} now, not {expected}"
            )
        if alias is None:
            if dataset.aliases.count() >= MOST_ALIASES:
                raise conflict("too_many", f"a dataset has at most {MOST_ALIASES} aliases; remove one first")
            alias = DatasetAlias(dataset=dataset, name=name)
        alias.version, alias.updated_by, alias.updated_at = version, caller.user, now
        alias.save()
        note_project(
            caller, "dataset_alias", f"{dataset.name}@{name} → {version.ref}", now=now,
            data={"dataset": dataset.pk, "alias": name, "from": before, "to": version.number},
        )  # fmt: skip
    return alias


def delete_alias(caller: Caller, dataset: Dataset, name: str, *, now: datetime) -> None:
    with transaction.atomic():
        alias = or_not_found(
            DatasetAlias.objects.select_for_update().filter(dataset=dataset, name=name).first(),
            "alias",
            f"{dataset.name}@{name}",
        )
        note_project(
            caller, "dataset_alias", f"{dataset.name}@{name} removed", now=now,
            data={"dataset": dataset.pk, "alias": name, "to": None},
        )  # fmt: skip
        alias.delete()
