"""Migrations expand, then contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader

from control_plane.ops.migration_lint import faults

RELEASED = Path(__file__).with_name("released_migrations.txt")


def ours() -> dict[tuple[str, str], Any]:
    disk = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    return {key: one for key, one in disk.items() if type(one).__module__.startswith("control_plane.")}


def test_every_migration_leaves_the_version_before_alive() -> None:
    lines = [line.split() for line in RELEASED.read_text().splitlines() if line and not line.startswith("#")]
    newest = {app: name for app, name in lines}  # noqa: C416  (pairs, and nothing else)
    found = {
        f"{app}.{name}": list(faults(migration, released=app in newest and name > newest[app]))
        for (app, name), migration in ours().items()
    }
    assert len(found) >= 9
    assert {name: said for name, said in found.items() if said} == {}


def test_every_app_has_one_leaf_and_numbers_without_holes() -> None:
    by_app: dict[str, list[int]] = {}
    for app, name in ours():
        by_app.setdefault(app, []).append(int(name[:4]))
    for app, numbers in by_app.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)), app


def of(*operations: Any, **attributes: Any) -> migrations.Migration:
    kind = type("Migration", (migrations.Migration,), {"operations": list(operations), **attributes})
    made: migrations.Migration = kind("0099_of_a_test", "runs")
    return made


PLAIN = models.IntegerField(default=0)
INDEX = models.Index(fields=["x"], name="by_x")


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        (migrations.RemoveField("run", "name"), "still reads it"),
        (migrations.DeleteModel("run"), "still reads it"),
        (migrations.RenameField("run", "name", "title"), "a new name breaks"),
        (migrations.RenameModel("run", "job"), "a new name breaks"),
        (migrations.RunSQL("ALTER TABLE runs_run DROP COLUMN name"), "takes something away"),
        (migrations.RunSQL(["SELECT 1", ("ALTER TABLE x ALTER COLUMN y SET NOT NULL", [])]), "takes something away"),
        (migrations.AddField("run", "x", PLAIN), "null=True or a db_default"),
        (migrations.AlterField("run", "x", models.CharField(max_length=3)), "may write what the new column refuses"),
        (migrations.AddIndex("metricpoint", INDEX), "locks a large table"),
        (migrations.AddConstraint("run", models.UniqueConstraint(fields=["x"], name="u")), "may break it"),
        (AddIndexConcurrently("metricpoint", INDEX), "needs `atomic = False`"),
    ],
)  # fmt: skip
def test_what_would_break_the_version_before_is_named(operation: Any, says: str) -> None:
    (said,) = faults(of(operation), released=True)
    assert says in said
    assert list(faults(of(operation, contracts="nobody reads it since 0.3"), released=True)) == []


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("run", "x", models.IntegerField(null=True)),
        migrations.AddField("run", "x", models.IntegerField(default=0, db_default=0)),
        migrations.AlterField("run", "x", models.IntegerField(null=True)),
        migrations.AddIndex("run", INDEX),
        migrations.RunSQL("CREATE TRIGGER keep BEFORE UPDATE ON x EXECUTE FUNCTION y()"),
        migrations.CreateModel("new", [("id", models.BigAutoField(primary_key=True))]),
    ],
)
def test_what_expands_is_left_alone(operation: Any) -> None:
    assert list(faults(of(operation), released=True)) == []


def test_a_table_of_this_very_migration_has_no_older_reader() -> None:
    new = migrations.CreateModel("metricpoint", [("id", models.BigAutoField(primary_key=True))])
    assert list(faults(of(new, migrations.AddField("metricpoint", "x", PLAIN)), released=True)) == []


def test_before_the_first_release_only_what_takes_away_counts() -> None:
    assert list(faults(of(migrations.AddField("run", "x", PLAIN)), released=False)) == []
    assert list(faults(of(migrations.RemoveField("run", "x")), released=False))
