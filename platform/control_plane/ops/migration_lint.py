"""Migrations expand first and contract a version later, because processes of both versions work on one database.

While an upgrade rolls, code of the version before reads and writes the new tables. So a migration adds; what nobody
reads any more goes one version after the last code that read it, in a migration that says so:

    class Migration(migrations.Migration):
        contracts = "no code reads run.old_name since 0.3"
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db.migrations import Migration, RunSQL
from django.db.migrations.operations import (
    AddConstraint,
    AddField,
    AddIndex,
    AlterField,
    AlterModelTable,
    AlterUniqueTogether,
    CreateModel,
    DeleteModel,
    RemoveField,
    RenameField,
    RenameModel,
    RunPython,
)
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED, ManyToManyField

# Tables that grow with use: an index that locks one stops ingest for as long as it is built.
LARGE = frozenset(
    {
        "metricpoint", "metricrollup", "logchunk", "trajectorysample", "histogram", "streamframe", "auditentry",
        "runevent",
    }
)  # fmt: skip
_DESTRUCTIVE_SQL = re.compile(
    r"\bDROP\s+(TABLE|COLUMN|TYPE|SCHEMA|VIEW)|\bRENAME\s+(TO|COLUMN|CONSTRAINT)|(^|;)\s*TRUNCATE|SET\s+NOT\s+NULL"
    r"|ALTER\s+COLUMN\s+\S+\s+(SET\s+DATA\s+)?TYPE",
    re.I,
)


def faults(migration: Migration, *, released: bool) -> Iterator[str]:
    """What a migration does that code of the version before would not survive, each with the way out.

    `released`: the tables that it changes have been in a release, so older code runs beside it.
    """
    if getattr(migration, "contracts", ""):
        return
    # Tables of this very migration: nobody has them yet.
    created = {one.name_lower for one in migration.operations if isinstance(one, CreateModel)}
    for operation in migration.operations:
        model: str = getattr(operation, "model_name_lower", "") or getattr(operation, "name_lower", "")
        if model in created and not isinstance(operation, DeleteModel):
            continue
        yield from _destructive(operation)
        if released:
            yield from _unready(operation, model)
            if isinstance(operation, AddIndexConcurrently) and migration.atomic:
                yield f"{operation.describe()}: a concurrent index needs `atomic = False`"


def _destructive(operation: Operation) -> Iterator[str]:
    if isinstance(operation, RemoveField | DeleteModel):
        yield (
            f"{operation.describe()}: code of the version before still reads it. Stop using it now, remove it one "
            'version later, and say `contracts = "…"` there'
        )
    if isinstance(operation, RenameField | RenameModel | AlterModelTable):
        yield (
            f"{operation.describe()}: a new name breaks the version before. Add the new one, write both, remove the "
            "old one a version later"
        )
    if isinstance(operation, RunSQL):
        for statement in _statements(operation):
            if _DESTRUCTIVE_SQL.search(statement):
                message = f"({statement.strip()[:80]!r})"
                yield f"SQL that takes something away {message}: expand now, contract a version later"


def _unready(operation: Operation, model: str) -> Iterator[str]:
    if isinstance(operation, AddField):
        field = operation.field
        fills_itself = (
            field.null or field.db_default is not NOT_PROVIDED or isinstance(field, ManyToManyField)
        )
        if not fills_itself:
            yield (
                f"{operation.describe()}: rows of the version before come without it. Give it null=True or a "
                "db_default (Django's `default` is not known to the database)"
            )
    if isinstance(operation, AlterField) and not operation.field.null:
        yield (
            f"{operation.describe()}: the version before may write what the new column refuses. Say why not: "
            "`contracts`"
        )
    if isinstance(operation, AddIndex) and not isinstance(operation, AddIndexConcurrently) and model in LARGE:
        yield f"{operation.describe()}: it locks a large table. Take AddIndexConcurrently, with `atomic = False`"
    if isinstance(operation, AddConstraint | AlterUniqueTogether):
        yield (
            f"{operation.describe()}: rows of the version before may break it. Add it a version after the code "
            "that keeps it, and say so: `contracts`"
        )
    if isinstance(operation, RunPython) and model in LARGE:
        yield f"{operation.describe()}: fill a large table by a tick, not in a migration"


def _statements(operation: RunSQL) -> Iterator[str]:
    sql = operation.sql
    for item in [sql] if isinstance(sql, str) else sql:
        yield item if isinstance(item, str) else str(item[0])
