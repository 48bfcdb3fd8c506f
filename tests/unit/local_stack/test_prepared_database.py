"""The migrated database that sessions of tests copy: never of other sources, never half of one."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.support import prepared


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
    assert {"common/ids.py", "accounts/models.py", "migrations/0001_initial.py"} <= names


@pytest.mark.django_db
def test_the_copy_has_every_migration() -> None:
    executor = MigrationExecutor(connection)
    assert executor.migration_plan(executor.loader.graph.leaf_nodes()) == []
