"""Backup, restore, verify: what was there is there again, and what is broken is named."""

from __future__ import annotations

import dataclasses
import io
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder

from control_plane.accounts.identity.caller import Caller
from control_plane.accounts.models import Role
from control_plane.accounts.tokens.scopes import ROLE_SCOPES
from control_plane.assets import services as catalog
from control_plane.assets.models import Upload
from control_plane.assets.storage import store
from control_plane.assets.storage.blob_columns import COLUMNS, EMPTY_LINE, is_named
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.core.infra import clock
from control_plane.core.infra.health import check_database
from control_plane.ops.backup import create, pg_tools
from control_plane.ops.backup.manifest import blob_file, read_manifest
from control_plane.ops.backup.orphan_blobs import survey, sweep
from control_plane.ops.backup.verify import verify_store
from control_plane.ops.redacted_settings import without_credentials
from control_plane.telemetry.models import TrajectoryFile
from tests.unit.control_plane.conftest import Person, SimulatedNode

pytestmark = pytest.mark.django_db(transaction=True)
OtherDatabase = Callable[[], AbstractContextManager[str]]


def do(*words: str, **options: Any) -> str:
    said = io.StringIO()
    call_command(*words, stdout=said, stderr=said, **options)
    return said.getvalue()


def move_store(settings: Any, folder: Path) -> None:
    folder.mkdir()
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, data_dir=folder)


def path_of(sha256: str, settings: Any) -> Path:
    path: Path = settings.ENVIRONMENT.data_dir / "blobs" / sha256[:2] / sha256
    return path


def test_what_was_backed_up_while_rows_were_written_serves_again(
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    tick: Callable[..., None],
    commit_checkpoint: Callable[..., None],
    other_database: OtherDatabase,
    settings: Any,
    tmp_path: Path,
) -> None:
    first = node(slots=4)
    run = start(first)
    attempt = first.reply.attempts[0]  # type: ignore[union-attr]
    with transaction.atomic():
        commit_checkpoint(run["id"], attempt.attempt_id, step=3)
    assert first.upload_checkpoint(attempt.attempt_id, attempt.epoch, step=3).status_code == 200
    checkpoint = Checkpoint.objects.get(state=CheckpointState.STORED)
    written = _Writer(alice)
    written.start()
    try:
        written.wait_for(3)
        do("backup", str(tmp_path / "backup"))
    finally:
        written.stop()
    assert "All is well" in do("verify", "--backup", str(tmp_path / "backup"))
    with other_database():
        move_store(settings, tmp_path / "restored")
        said = do("restore", str(tmp_path / "backup"))
        assert "All is well: every byte compared" in said
        assert 3 <= Upload.objects.filter(filename="busy.bin").count() <= written.count
        # The same token, a download, and a run from the restored checkpoint on the same node.
        files = alice.get(f"/checkpoints/{checkpoint.pk}/download")
        assert b"".join(files.streaming_content) == b"checkpoint " + attempt.attempt_id.encode() + b" 3"
        again = alice.run(name="again", model={"checkpoint": checkpoint.pk})
        tick()
        first.beat()
        first.beat()
        assert alice.see(again["id"])["status"] == "RUNNING", alice.see(again["id"])
        # One byte.
        blob = path_of(checkpoint.tar_sha256, settings)
        damaged = bytearray(blob.read_bytes())
        damaged[7] ^= 1
        blob.write_bytes(damaged)
        found = [str(finding) for finding in verify_store(now=_late())]
        assert len(found) == 1
        assert found[0].startswith(f"damaged: {checkpoint.tar_sha256} its bytes have the hash ")
        assert f"checkpoints.Checkpoint {checkpoint.pk}" in found[0]
        assert [*verify_store(now=_late(), quick=True)] == [], "a quick look reads no bytes"
        with pytest.raises(CommandError, match=r"1 fault\(s\) were found"):
            do("verify")


class _Writer(threading.Thread):
    """Uploads one small file after the other, each in its own transaction."""

    def __init__(self, person: Person) -> None:
        super().__init__(daemon=True)
        self.caller = Caller(person.user, person.project, Role.ADMIN, ROLE_SCOPES[Role.ADMIN])
        self.count = 0
        self._changed = threading.Condition()
        self._stopping = False

    def run(self) -> None:
        while not self._stopping:
            data = io.BytesIO(b"written while the backup was made %d" % self.count)
            catalog.take_upload(self.caller, data, filename="busy.bin", purpose="dataset")
            with self._changed:
                self.count += 1
                self._changed.notify_all()
        connection.close()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, timeout=60)

    def stop(self) -> None:
        self._stopping = True
        self.join(timeout=60)


def _late() -> Any:
    from django.utils import timezone

    return timezone.now() + timedelta(days=1)


def test_a_second_backup_copies_only_what_is_new_and_drops_what_is_gone(
    alice: Person, tmp_path: Path, settings: Any
) -> None:
    folder = tmp_path / "backup"
    do("backup", str(folder))
    before = read_manifest(folder)
    upload = Upload.objects.get(pk=alice.upload(b"new bytes"))
    assert "Copied 1 blob(s)" in do("backup", str(folder))
    assert set(read_manifest(folder).blobs) == set(before.blobs) | {upload.sha256}
    assert len([*folder.glob("database-*.dump")]) == 1
    upload.delete()
    do("backup", str(folder))
    assert set(read_manifest(folder).blobs) == set(before.blobs)
    assert not blob_file(folder, upload.sha256).exists()
    assert (folder.stat().st_mode & 0o777, read_manifest(folder).settings["secret_key"]) == (0o700, "set")


def test_verify_names_what_is_missing_and_what_nobody_names(alice: Person, settings: Any) -> None:
    upload = Upload.objects.get(pk=alice.upload(b"will be lost"))
    path_of(upload.sha256, settings).unlink()
    unnamed = store.put([b"of nobody"])
    by_kind = {finding.kind: finding for finding in verify_store(now=_late())}
    assert str(by_kind["missing"]) == f"missing: {upload.sha256} needed by assets.Upload {upload.pk}"
    assert by_kind["extra"].sha256 == unnamed.sha256
    young = [finding.kind for finding in verify_store(now=_late() - timedelta(days=1))]
    assert young == ["missing"], "a blob is written before its row: a young one is no finding"


def test_an_old_unreferenced_blob_is_deleted_only_on_request(alice: Person, settings: Any) -> None:
    upload = Upload.objects.get(pk=alice.upload(b"of somebody"))
    old, young = store.put([b"old, of nobody"]), store.put([b"young, of nobody"])
    line = store.put([EMPTY_LINE])  # a playground's, which no row names
    for blob in (old, line):
        os.utime(path_of(blob.sha256, settings), (1.0, 1.0))
    os.utime(path_of(upload.sha256, settings), (1.0, 1.0))
    os.utime(path_of(young.sha256, settings), (clock.now().timestamp(),) * 2)
    told = do("verify", "--free-unnamed", "--dry-run")
    assert (
        old.sha256 in told and "1 blob(s) with 14 bytes would be freed" in told and store.has_blob(old.sha256)
    )
    with pytest.raises(CommandError, match=r"is not marked as any database's.*say --store-is-mine once"):
        do("verify", "--free-unnamed")
    assert store.has_blob(old.sha256)
    assert "1 blob(s) with 14 bytes were freed" in do("verify", "--free-unnamed", "--store-is-mine")
    much = store.put([b"x" * sum(blob.bytes for blob in store.listed())])
    os.utime(path_of(much.sha256, settings), (1.0, 1.0))
    with pytest.raises(CommandError, match=r"1 of \d+ blob.*more than a fifth.*add --all"):
        do("verify", "--free-unnamed")
    assert store.has_blob(much.sha256)
    assert f"1 blob(s) with {much.bytes} bytes were freed" in do("verify", "--free-unnamed", "--all")
    assert not store.has_blob(old.sha256)
    assert all(map(store.has_blob, (upload.sha256, young.sha256, line.sha256)))
    for words in (["--free-unnamed", "--older-than=0.5"], ["--dry-run"], ["--free-unnamed", "--backup=x"],
                  ["--all"], ["--store-is-mine"], ["--free-unnamed", "--dry-run", "--store-is-mine"]):  # fmt: skip
        with pytest.raises(CommandError):
            do("verify", *words)


def test_a_copy_of_the_database_frees_nothing_in_the_store_of_the_original(
    alice: Person, other_database: OtherDatabase, settings: Any, tmp_path: Path
) -> None:
    do("verify", "--free-unnamed", "--store-is-mine")
    do("backup", str(tmp_path / "backup"))
    upload = Upload.objects.get(pk=alice.upload(b"after the backup"))
    os.utime(path_of(upload.sha256, settings), (1.0, 1.0))
    with other_database():
        do("restore", str(tmp_path / "backup"))
        with pytest.raises(CommandError, match=r"marked as that of the database .*, and this one is "):
            do("verify", "--free-unnamed", "--all")
    assert store.has_blob(upload.sha256)
    assert "0 blob(s)" in do("verify", "--free-unnamed"), "the original still may"


def test_bytes_that_were_written_again_are_not_deleted(settings: Any) -> None:
    blob = store.put([b"written again"])
    os.utime(path_of(blob.sha256, settings), (1.0, 1.0))
    now = clock.now()
    (found,) = survey(now=now).unnamed
    os.utime(path_of(blob.sha256, settings), (now.timestamp(),) * 2)
    assert [*sweep([found], now=now)] == [] and store.has_blob(blob.sha256)
    os.utime(path_of(blob.sha256, settings), (1.0, 1.0))
    assert [*sweep([found, found], now=now)] == [found], "once"


def test_bytes_are_named_whatever_they_are_named_for(alice: Person) -> None:
    """A trajectory file that was downloaded and uploaded as a dataset outlives its run's telemetry."""
    upload = Upload.objects.get(pk=alice.upload(b"trajectories of a run"))
    assert (
        is_named(upload.sha256)
        and not store.delete_if_unreferenced(upload.sha256)
        and store.has_blob(upload.sha256)
    )
    upload.delete()
    assert store.delete_if_unreferenced(upload.sha256) and not store.has_blob(upload.sha256)


def test_a_backup_of_a_store_that_lost_a_blob_is_refused_and_leaves_nothing(
    alice: Person, tmp_path: Path, settings: Any
) -> None:
    upload = Upload.objects.get(pk=alice.upload(b"will be lost"))
    path_of(upload.sha256, settings).unlink()
    with pytest.raises(CommandError, match=f"{upload.sha256} of assets.Upload {upload.pk}"):
        do("backup", str(tmp_path / "backup"))
    assert not [*(tmp_path / "backup").glob("*.dump")]
    with pytest.raises(CommandError, match="is no backup, or one that did not end"):
        do("verify", "--backup", str(tmp_path / "backup"))


def test_a_checkpoint_that_is_deleted_during_the_backup_is_restored_as_deleted(
    alice: Person,
    node: Callable[..., SimulatedNode],
    start: Callable[..., Any],
    commit_checkpoint: Callable[..., None],
    other_database: OtherDatabase,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    tmp_path: Path,
) -> None:
    first = node()
    run = start(first)
    attempt = first.reply.attempts[0]  # type: ignore[union-attr]
    with transaction.atomic():
        commit_checkpoint(run["id"], attempt.attempt_id, step=3)
    first.upload_checkpoint(attempt.attempt_id, attempt.epoch, step=3)
    checkpoint = Checkpoint.objects.get(state=CheckpointState.STORED)
    copy_blobs = create._copy_blobs

    def free_first(*arguments: Any) -> Any:
        Checkpoint.objects.filter(pk=checkpoint.pk).update(state=CheckpointState.DELETED)
        path_of(checkpoint.tar_sha256, settings).unlink()
        return copy_blobs(*arguments)

    monkeypatch.setattr(create, "_copy_blobs", free_first)
    do("backup", str(tmp_path / "backup"))
    assert read_manifest(tmp_path / "backup").freed == [checkpoint.tar_sha256]
    with other_database():
        move_store(settings, tmp_path / "restored")
        assert "All is well" in do("restore", str(tmp_path / "backup"))
        checkpoint.refresh_from_db()
        assert checkpoint.state == CheckpointState.DELETED


def test_a_trajectory_file_that_is_deleted_during_the_backup_is_not_restored(
    alice: Person,
    other_database: OtherDatabase,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    tmp_path: Path,
) -> None:
    run = alice.run()
    blob = store.put([b"trajectories"])
    sha256, size = blob.sha256, blob.bytes
    file = TrajectoryFile.objects.create(
        run_id=run["id"], sha256=sha256, bytes=size, samples=1, created_at=clock.now()
    )
    copy_blobs = create._copy_blobs

    def free_first(*arguments: Any) -> Any:
        file.delete()
        path_of(sha256, settings).unlink()
        return copy_blobs(*arguments)

    monkeypatch.setattr(create, "_copy_blobs", free_first)
    do("backup", str(tmp_path / "backup"))
    assert read_manifest(tmp_path / "backup").freed == [sha256]
    with other_database():
        move_store(settings, tmp_path / "restored")
        assert "All is well" in do("restore", str(tmp_path / "backup"))
        assert not TrajectoryFile.objects.exists()


def test_a_backup_of_an_older_version_comes_forward(
    alice: Person, other_database: OtherDatabase, settings: Any, tmp_path: Path
) -> None:
    call_command("migrate", "socialaccount", "0005", verbosity=0, interactive=False)
    try:
        do("backup", str(tmp_path / "backup"))
    finally:
        call_command("migrate", verbosity=0, interactive=False)
    newer = "socialaccount.0006_alter_socialaccount_extra_data"
    assert newer not in read_manifest(tmp_path / "backup").migrations
    with other_database():
        move_store(settings, tmp_path / "restored")
        assert "All is well" in do("restore", str(tmp_path / "backup"))
        check_database()
        assert ("socialaccount", newer.split(".")[1]) in MigrationRecorder(connection).applied_migrations()
        assert alice.get("/me").status_code == 200


def test_a_restore_never_overwrites(alice: Person, tmp_path: Path) -> None:
    do("backup", str(tmp_path / "backup"))
    with pytest.raises(CommandError, match="the database is not empty, and a restore never overwrites"):
        do("restore", str(tmp_path / "backup"))
    with pytest.raises(CommandError, match=r"nowhere/backup.json does not exist: .* is no backup"):
        do("restore", str(tmp_path / "nowhere"))
    whole = (tmp_path / "backup" / "backup.json").read_bytes()
    (tmp_path / "backup" / "backup.json").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CommandError, match=r"backup.json is damaged"):
        do("restore", str(tmp_path / "backup"))


def test_a_damaged_or_newer_backup_leaves_the_database_empty(
    alice: Person, other_database: OtherDatabase, settings: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    do("backup", str(folder))
    manifest = read_manifest(folder)
    with other_database():
        move_store(settings, tmp_path / "restored")
        newer = msgspec.structs.replace(manifest, migrations=[*manifest.migrations, "runs.9999_later"])
        (folder / "backup.json").write_bytes(msgspec.json.encode(newer))
        with pytest.raises(CommandError, match=r"does not know \(runs.9999_later\): restore it with"):
            do("restore", str(folder))
        (folder / "backup.json").write_bytes(msgspec.json.encode(manifest))
        blob = blob_file(folder, next(iter(manifest.blobs)))
        whole = blob.read_bytes()
        blob.write_bytes(whole + b"!")
        with pytest.raises(CommandError, match="is damaged"):
            do("restore", str(folder))
        assert create.database_is_empty()
        blob.write_bytes(whole)
        dump = folder / manifest.database
        dump.write_bytes(dump.read_bytes()[:-1])
        with pytest.raises(CommandError, match="is damaged"):
            do("restore", str(folder))
        assert create.database_is_empty()


def test_a_folder_with_other_files_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CommandError, match="holds other files"):
        do("backup", str(tmp_path))


def test_a_backup_is_its_owners_alone_from_the_first_byte(
    alice: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    folder.chmod(0o755)
    modes: list[int] = []
    run = pg_tools.run

    def watched(words: list[str]) -> None:
        modes.append(folder.stat().st_mode & 0o777)
        run(words)
        modes.append(Path(words[-1]).stat().st_mode & 0o777)

    monkeypatch.setattr(pg_tools, "run", watched)
    before = os.umask(0o022)
    try:
        said = do("backup", str(folder))
        assert os.umask(0o022) == 0o022, "for the backup alone"
    finally:
        os.umask(before)
    assert modes == [0o700, 0o600]
    assert "was open to others (mode 0755)" in said
    assert [path for path in folder.rglob("*") if path.stat().st_mode & 0o077] == []


def test_a_folder_that_stays_open_to_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o750)
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)  # as on a file system without modes
    with pytest.raises(CommandError, match=r"open to others .mode 0750."):
        do("backup", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_programs_that_are_too_old_are_refused_with_the_way_out() -> None:
    assert os.path.basename(pg_tools.program("pg_dump", server=18)) == "pg_dump"
    with pytest.raises(CommandError, match=r"no pg_dump for PostgreSQL 99: .*postgresql-client-99"):
        pg_tools.program("pg_dump", server=99)


# Hashes of credentials, of requests, and of what is not in the store (yet).
NO_BLOBS = frozenset(
    {
        "core.IdempotencyKey.request_sha256",
        "accounts.AuditEntry.sha256",
        "accounts.Invitation.sha256",
        "accounts.ApiToken.sha256",
        "accounts.ApiToken.previous_sha256",
        "accounts.LoginLink.sha256",
        "accounts.StreamTicket.sha256",
        "runs.Run.dedupe_sha256",
        "assets.UploadSession.sha256",  # announced by the client
        "checkpoints.Checkpoint.manifest_sha256",  # of a file inside the tar
        "checkpoints.CheckpointUpload.tar_sha256",  # of an upload that has not ended
        "assets.BaseModel.manifest_sha256",  # of names and hashes
        "assets.ModelImport.tar_sha256",  # the same; once it has, the model names the blob
        "fleet.Node.credential_sha256",
        "fleet.JoinToken.sha256",
    }
)


def test_every_column_with_a_hash_is_a_blobs_or_is_said_not_to_be() -> None:
    """Else a new kind of blob would be in no backup."""
    known = {f"{column.model}.{column.sha256}" for column in COLUMNS} | NO_BLOBS
    found = {
        f"{model._meta.app_label}.{model.__name__}.{field.name}"
        for model in apps.get_models()
        if model.__module__.startswith("control_plane.")
        for field in model._meta.fields
        if "sha256" in field.name
    }
    assert found == known


def test_an_address_is_shown_without_its_credentials() -> None:
    assert without_credentials("postgresql://oolong:hunter2@db:5432/oolong?password=x") == (
        "postgresql://…@db:5432/oolong?…"
    )
    assert without_credentials("redis://:hunter2@[::1]:6379/0").startswith("redis://…@")
    assert without_credentials("") == ""
