"""The migrated database that sessions of tests copy: never of other sources, never half of one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from local_stack import postgres
from tests.conftest import PATHS
from tests.support import prepared
from tests.support.databases import new_database


class Made:
    """What makes a folder, and how often it did."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, folder: Path) -> None:
        self.times += 1
        (folder / "table").write_text(f"made {self.times}")


def test_it_is_made_once_and_every_session_has_a_copy_of_its_own(tmp_path: Path) -> None:
    made = Made()
    for name in ("first", "second"):
        prepared.keep(tmp_path / "shelf", "of-a", made, copy_to=tmp_path / name)
        assert (tmp_path / name / "table").read_text() == "made 1"
        (tmp_path / name / "table").write_text("a test wrote here")
    assert made.times == 1


def test_another_digest_is_made_anew(tmp_path: Path) -> None:
    made = Made()
    prepared.keep(tmp_path / "shelf", "of-a", made)
    prepared.keep(tmp_path / "shelf", "of-b", made, copy_to=tmp_path / "copy")
    assert (tmp_path / "copy" / "table").read_text() == "made 2"


def test_what_a_crash_left_half_made_is_not_taken(tmp_path: Path) -> None:
    def crash(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared.keep(tmp_path / "shelf", "of-a", crash)
    prepared.keep(tmp_path / "shelf", "of-a", Made(), copy_to=tmp_path / "copy")
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["table"]


def test_what_a_killed_session_still_writes_is_in_no_ones_way(tmp_path: Path) -> None:
    """Its server ends after it, and may write into a folder that is being removed."""
    writing: list[Path] = []

    def die(folder: Path) -> None:
        writing.append(folder)
        raise SystemExit

    with pytest.raises(SystemExit):
        prepared.keep(tmp_path / "shelf", "of-a", die)

    def beside_the_dead(folder: Path) -> None:
        writing[0].mkdir(exist_ok=True)
        (writing[0] / "late").touch()
        (folder / "table").touch()

    prepared.keep(tmp_path / "shelf", "of-a", beside_the_dead, copy_to=tmp_path / "copy")
    assert [file.name for file in (tmp_path / "copy").iterdir()] == ["table"]
    prepared.keep(tmp_path / "shelf", "of-b", Made())
    folders = {found.name for found in (tmp_path / "shelf").iterdir() if found.is_dir()}
    assert folders == {"of-a", "of-b"}


def test_a_server_that_did_not_end_in_order_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sh", "-c", "kill -KILL $$"])
        process.wait(timeout=60)
        return process

    monkeypatch.setattr(prepared, "start_server", killed)
    monkeypatch.setattr(prepared, "until_it_serves", lambda *_, **__: None)
    monkeypatch.setattr(postgres.Cluster, "initialize", lambda self: True)
    monkeypatch.setattr(postgres.Cluster, "ensure_database", lambda self, name="": None)
    migrates_nothing = tmp_path / "python"
    migrates_nothing.write_text("#!/bin/sh\n")
    migrates_nothing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(migrates_nothing))
    with pytest.raises(RuntimeError, match="did not end in order: status -9"):
        prepared.keep(tmp_path / "shelf", "of-a", lambda folder: prepared._make(PATHS, folder))
    assert [found.name for found in (tmp_path / "shelf").iterdir()] == ["lock"]


def test_sessions_that_begin_at_once_make_it_once(tmp_path: Path) -> None:
    made, begun, go_on = Made(), threading.Event(), threading.Event()

    def slowly(folder: Path) -> None:
        begun.set()
        assert go_on.wait(60)
        made(folder)

    def session(name: str) -> None:
        prepared.keep(tmp_path / "shelf", "of-a", slowly, copy_to=tmp_path / name)

    threads = [threading.Thread(target=session, args=[name]) for name in ("one", "two")]
    threads[0].start()
    assert begun.wait(60)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert made.times == 1
    assert [(tmp_path / name / "table").read_text() for name in ("one", "two")] == ["made 1", "made 1"]


def test_the_longest_unused_is_forgotten(tmp_path: Path) -> None:
    made = Made()
    for number in range(prepared.KEPT):
        prepared.keep(tmp_path / "shelf", f"of-{number}", made)
        os.utime(tmp_path / "shelf" / f"of-{number}.ready", (number, number))
    prepared.keep(tmp_path / "shelf", "of-0", made)
    prepared.keep(tmp_path / "shelf", "of-new", made)
    kept = {folder.name for folder in (tmp_path / "shelf").iterdir() if folder.is_dir()}
    assert len(kept) == prepared.KEPT
    assert kept >= {"of-0", "of-new"}
    assert "of-1" not in kept


def test_a_changed_migration_and_another_version_are_other_sources(tmp_path: Path) -> None:
    migration = tmp_path / "0001_initial.py"
    migration.write_text("one column")
    before = prepared.digest(["django 5"], [migration])
    assert prepared.digest(["django 5"], [migration]) == before
    assert prepared.digest(["django 6"], [migration]) != before
    migration.write_text("two columns")
    assert prepared.digest(["django 5"], [migration]) != before


def test_what_migrations_import_of_ours_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(prepared, "digest", lambda words, files: seen.extend(files) or "")
    prepared.sources()
    names = {"/".join(file.parts[-2:]) for file in seen}
    assert {"local_stack/postgres.py", "support/prepared.py"} <= names, "how the cluster is made"
    assert {"infra/ids.py", "accounts/models.py", "migrations/0001_initial.py"} <= names


def test_another_owner_is_another_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root PostgreSQL runs as another user, who could not read the files of ours, nor we those of that one."""
    found = {prepared.sources()}
    for uid in (7001, 7002):
        monkeypatch.setattr(postgres, "service_user", lambda uid=uid: postgres.RunAs(uid=uid, gid=uid))
        found.add(prepared.sources())
    assert len(found) == 3


@pytest.mark.django_db
def test_the_copy_has_every_migration() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []


def test_a_new_database_has_the_tables_and_nothing_of_the_one_before(postgres_url: str) -> None:
    for _ in range(2):
        with psycopg.connect(new_database(postgres_url, "made_twice"), autocommit=True) as database:
            tables = "SELECT count(*) > 0 FROM django_migrations WHERE app = 'runs'"
            assert database.execute(tables).fetchone() == (True,)
            assert database.execute("SELECT to_regclass('written_by_a_test')").fetchone() == (None,)
            database.execute("CREATE TABLE written_by_a_test ()")
