"""Create a backup while the installation runs."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection, transaction

import oolong
from control_plane.assets.storage import store
from control_plane.core.infra import clock
from control_plane.core.infra.clock import rfc3339
from control_plane.ops.backup import pg_tools
from control_plane.ops.backup.blob_references import references
from control_plane.ops.backup.manifest import FORMAT, NAME, Manifest, blob_file, digest, write_manifest
from control_plane.ops.redacted_settings import redacted_settings

Say = Callable[[str], None]


def create_backup(folder: Path, *, say: Say) -> Manifest:
    """Write a backup, or bring the one in `folder` up to date: blobs that it has already are not copied again.

    The old one stays whole until the new one is. Nobody else on the machine may look into the folder or what is
    written. Raises CommandError.
    """
    with _for_nobody_else():
        return _make_backup(folder, say)


def _make_backup(folder: Path, say: Say) -> Manifest:
    folder.mkdir(parents=True, exist_ok=True)
    if any(entry.name not in _own_names(entry) for entry in folder.iterdir()):
        raise CommandError(f"{folder} holds other files; name an empty folder or one with an earlier backup")
    _close_to_others(folder, say)
    with _locked(folder):
        at = clock.now()
        database = folder / f"database-{at:%Y%m%dT%H%M%S%f}.dump"
        try:
            sizes, server, migrations = _snapshot(database, say)
            database_sha256, database_bytes = digest(database)
            blobs, freed = _copy_blobs(folder, sizes, say)
            manifest = Manifest(
                format=FORMAT, made_at=rfc3339(at) or "", version=oolong.__version__, database=database.name,
                database_sha256=database_sha256, database_bytes=database_bytes, postgres=server,
                migrations=migrations, blobs=blobs, freed=freed, settings=redacted_settings(),
                key_fingerprint=fingerprint(settings.SECRET_KEY),
            )  # fmt: skip
            write_manifest(folder, manifest)
        except BaseException:
            database.unlink(missing_ok=True)
            raise
        _drop_what_is_old(folder, manifest)
    return manifest


@contextmanager
def _for_nobody_else() -> Iterator[None]:
    """What this process and its programs write is its user's alone, from the first byte."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _close_to_others(folder: Path, say: Say) -> None:
    """A folder that was there before may be open to the group or to everybody."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & 0o077:
        return
    try:
        folder.chmod(mode & 0o700)
    except OSError as error:
        raise CommandError(
            f"{folder} is open to others (mode {mode:04o}) and cannot be closed: {error}"
        ) from error
    if (after := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
        raise CommandError(
            f"{folder} is open to others (mode {after:04o}) and its file system keeps it so; name a folder elsewhere"
        )
    say(f"{folder} was open to others (mode {mode:04o}); now it is its owner's alone.")


def fingerprint(key: str) -> str:
    """Tells whether two keys are the same, and nothing else of them."""
    return hmac.new(key.encode(), b"oolong backup", hashlib.sha256).hexdigest()[:16]


def _own_names(entry: Path) -> set[str]:
    is_dump = entry.name.startswith("database-") and entry.name.endswith(".dump")
    return {NAME, f".{NAME}.new", "blobs", ".lock", entry.name if is_dump else ""}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CommandError(f"another backup into {folder} is at work") from error
        yield


def _snapshot(database: Path, say: Say) -> tuple[dict[str, int | None], int, list[str]]:
    """Dump the database, and list the blobs that exactly these rows name: hash -> size where a row says it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot(), current_setting('server_version_num')::int / 10000")
            snapshot, server = cursor.fetchone()
            cursor.execute("SELECT app || '.' || name FROM django_migrations ORDER BY 1")
            migrations = [row[0] for row in cursor.fetchall()]
        pg_dump = pg_tools.program("pg_dump", server=server)
        say(f"Dumping the database with {pg_dump} …")
        pg_tools.run(
            [
                pg_dump,
                "--format=custom",
                "--no-owner",
                "--no-privileges",
                f"--snapshot={snapshot}",
                "--file",
                str(database),
            ]
        )
        sizes: dict[str, int | None] = {}
        for reference in references():
            sizes[reference.sha256] = sizes.get(reference.sha256) or reference.bytes
    return sizes, server, migrations


def _copy_blobs(folder: Path, sizes: dict[str, int | None], say: Say) -> tuple[dict[str, int], list[str]]:
    """Copy what is not here yet. A blob that retention has deleted since is recorded; one that is lost is an error."""
    blobs: dict[str, int] = {}
    gone: list[str] = []
    copied = 0
    for sha256, size in sorted(sizes.items()):
        target = blob_file(folder, sha256)
        if target.is_file() and (size is None or target.stat().st_size == size):
            blobs[sha256] = target.stat().st_size
            continue
        try:
            blobs[sha256] = _copy(sha256, target)
            copied += 1
        except FileNotFoundError:
            gone.append(sha256)
    say(f"Copied {copied} blob(s); {len(blobs) - copied} were here already.")
    if gone:
        named = {reference.sha256: reference.row for reference in references()}
        lost = [f"{sha256} of {named[sha256]}" for sha256 in gone if sha256 in named]
        if lost:
            raise CommandError(
                "the store has lost what rows name; nothing was backed up:\n  "
                + "\n  ".join(lost[:20])
                + "\n`manage.py verify` lists all of them"
            )
    return blobs, gone


def _copy(sha256: str, target: Path) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{sha256}.new")
    found, size = hashlib.sha256(), 0
    try:
        with store.open_blob(sha256) as source, temporary.open("wb") as stream:
            for chunk in store.read_chunks(source):
                found.update(chunk)
                size += len(chunk)
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        if found.hexdigest() != sha256:
            raise CommandError(
                f"the blob {sha256} is damaged: its bytes have the hash {found.hexdigest()}. Nothing was backed up; "
                "`manage.py verify` says which rows need it"
            )
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def _drop_what_is_old(folder: Path, manifest: Manifest) -> None:
    for entry in folder.glob("database-*.dump"):
        if entry.name != manifest.database:
            entry.unlink()
    for entry in folder.glob("blobs/*/*"):
        if entry.name not in manifest.blobs:
            entry.unlink()


def database_is_empty() -> bool:
    """Whether nothing of Oolong, and nothing else, is in the database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p', 'v', 'm', 'S')"
        )
        return bool(cursor.fetchone()[0] == 0)
