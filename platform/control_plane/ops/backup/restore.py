"""Restore a backup into an empty installation."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction

from control_plane.assets.storage import store
from control_plane.checkpoints.models import Checkpoint, CheckpointState
from control_plane.core.infra import clock
from control_plane.core.infra.health import known_migrations
from control_plane.ops.backup import pg_tools
from control_plane.ops.backup.create import Say, database_is_empty, fingerprint
from control_plane.ops.backup.manifest import Manifest, blob_file, digest, read_manifest
from control_plane.telemetry.models import TrajectoryFile


def restore_backup(folder: Path, *, say: Say) -> Manifest:
    """Blobs first, each checked on its way; then the rows, all or none; then the migrations since then.

    Raises CommandError, and then the database is as empty as before. Safe to repeat.
    """
    manifest = read_manifest(folder)
    _refuse_newer(manifest)
    if not database_is_empty():
        raise CommandError(
            "the database is not empty, and a restore never overwrites: name a new one by DATABASE_URL "
            "(CREATE DATABASE …), or empty this one yourself"
        )
    _check_dump(folder, manifest)
    for sha256, size in manifest.blobs.items():
        _put(folder, sha256, size)
    say(f"{len(manifest.blobs)} blob(s) are in the store.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int / 10000")
        server = cursor.fetchone()[0]
    pg_restore = pg_tools.program("pg_restore", server=max(server, manifest.postgres))
    connection.close()
    pg_tools.run(
        [
            pg_restore, "--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction",
            "--dbname", str(connection.settings_dict["NAME"]), str(folder / manifest.database),
        ]
    )  # fmt: skip
    say("The rows are restored. Applying migrations …")
    call_command("migrate", interactive=False, verbosity=0)
    _mark_deleted(manifest)
    if fingerprint(settings.SECRET_KEY) != manifest.key_fingerprint:
        say(
            "SECRET_KEY is not the one of the backup: everybody logs in again, signed links are void, and project "
            "secrets open only if OOLONG_SECRETS_KEYS has the old key."
        )
    return manifest


def _refuse_newer(manifest: Manifest) -> None:
    known = {f"{app}.{name}" for app, name in known_migrations()}
    unknown = sorted(set(manifest.migrations) - known)
    if unknown:
        raise CommandError(
            f"the backup is of version {manifest.version} and has {len(unknown)} migration(s) that this version does "
            f"not know ({unknown[0]}): restore it with that version or a newer one"
        )


def _check_dump(folder: Path, manifest: Manifest) -> None:
    dump = folder / manifest.database
    if not dump.is_file():
        raise CommandError(f"{dump} is missing")
    sha256, size = digest(dump)
    if sha256 != manifest.database_sha256:
        raise CommandError(f"{dump} is damaged: {size} bytes with the hash {sha256}; nothing was restored")


def _put(folder: Path, sha256: str, size: int) -> None:
    if store.has_blob(sha256) and store.size_of(sha256) == size:
        return
    file = blob_file(folder, sha256)
    if not file.is_file():
        raise CommandError(f"{file} is missing; nothing was restored into the database")
    found, found_bytes = digest(file)
    if found != sha256:
        raise CommandError(
            f"{file} is damaged: {found_bytes} bytes with the hash {found}; nothing was restored into the database"
        )
    with file.open("rb") as stream:
        store.put(store.read_chunks(stream))


def _mark_deleted(manifest: Manifest) -> None:
    """What retention freed while the backup was made: checkpoints keep their rows, files of trajectories do not."""
    if manifest.freed:
        with transaction.atomic():
            Checkpoint.objects.filter(tar_sha256__in=manifest.freed, state=CheckpointState.STORED).update(
                state=CheckpointState.DELETED, deleted_at=clock.now()
            )
            TrajectoryFile.objects.filter(sha256__in=manifest.freed).delete()
