"""Upload committed checkpoints to the artifact store.

A job announces a checkpoint in its outbox. The agent pins it at once with hard links, so that the trainer may prune
its own copy, then uploads it as a deterministic tar in parts. Uploads resume after a restart of the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
from gpu_agents.agent.job_files import GrowingFile, outbox_files, skip_line, whole_lines
from gpu_agents.agent.records import JobRecord, read_json, write_json
from gpu_agents.agent.settings import DataDirectory
from gpu_agents.agent.untrusted import Untrusted, directory_below, remove_tree
from oolong.client.directory_tar import DirectoryTar, FileChanged
from oolong.contracts.agent import LONGEST_LINE
from oolong.contracts.telemetry import CheckpointLine
from oolong.system.backoff import Backoff

log = logging.getLogger(__name__)

MANIFEST_FILE = "MANIFEST.json"
DEEPEST = 8  # nesting of directories in a checkpoint
TAG = b'"type":"checkpoint"'  # cheap check before decoding a line
GONE_STATUSES = (403, 404)  # the server knows no such attempt of this node


class Upload(msgspec.Struct, kw_only=True):
    """The upload state of one checkpoint."""

    run_id: str
    attempt_id: str
    epoch: int
    job_id: str
    outbox_file: str
    outbox_end: int  # the server knows the checkpoint once the outbox is shipped to here
    step: int
    manifest_sha256: str
    final: bool
    pinned: str  # directory of hard links
    tar_sha256: str = ""
    tar_bytes: int = 0
    stored: bool = False
    dropped: str = ""  # why it will never be uploaded

    @property
    def done(self) -> bool:
        return self.stored or bool(self.dropped)

    @property
    def key(self) -> str:
        return f"{self.attempt_id}-{self.step:08d}"


@dataclass
class Uploader:
    """Finds, pins and uploads checkpoints. `jobs` returns the records; `shipped` the offset of an outbox file."""

    api: AgentApi
    data: DataDirectory
    jobs: Callable[[], Iterable[JobRecord]]
    shipped: Callable[[str, str], int]
    on_progress: Callable[[], None] = lambda: None
    uploads: dict[str, Upload] = field(default_factory=dict)
    _read_to: dict[Path, int] = field(default_factory=dict)
    _backoff: Backoff = field(default_factory=lambda: Backoff(initial=1.0, maximum=60.0))

    def __post_init__(self) -> None:
        for path in sorted(self.data.uploads.glob("*.json")):
            upload = read_json(path, Upload)
            self.uploads[upload.key] = upload

    async def run(self, *, poll_seconds: float = 0.5) -> None:
        while True:
            wait = poll_seconds
            self.scan()
            upload = self.next_upload()
            if upload is not None:
                try:
                    await self.upload(upload)
                    self._backoff.succeeded()
                    continue
                except (ServerUnavailable, ApiError, OSError) as error:
                    wait = self._backoff.failed(getattr(error, "retry_after", None))
                    log.warning(
                        "upload of checkpoint %s failed, retrying in %.1f s: %s", upload.key, wait, error
                    )
            await self._sleep_scanning(wait, poll_seconds)

    def scan(self) -> None:
        """Read new outbox lines and pin the checkpoints that they announce."""
        for record in self.jobs():
            for incarnation in range(record.incarnation + 1):
                try:
                    for file in outbox_files(self.data, record, incarnation):
                        self._read(record, file)
                except OSError as error:  # the shipper logs it and retries
                    log.debug("outbox of %s: %s", record.name, error)

    def next_upload(self) -> Upload | None:
        """The newest checkpoint whose outbox line is shipped: recovery needs the newest first."""
        ready = [
            upload
            for upload in self.uploads.values()
            if not upload.done and self.shipped(upload.job_id, upload.outbox_file) >= upload.outbox_end
        ]
        return max(ready, key=lambda upload: (upload.final, upload.step), default=None)

    def pending(self, attempt_id: str) -> bool:
        """Whether uploads of this attempt need its files."""
        return any(upload.attempt_id == attempt_id and not upload.done for upload in self.uploads.values())

    @property
    def is_busy(self) -> bool:
        return any(not upload.done for upload in self.uploads.values())

    def forget(self, attempt_id: str) -> None:
        """Remove the records of an attempt whose directory is removed."""
        for upload in [upload for upload in self.uploads.values() if upload.attempt_id == attempt_id]:
            del self.uploads[upload.key]
            self._record(upload).unlink(missing_ok=True)
        root = self.data.attempt(attempt_id)
        for path in [path for path in self._read_to if path.is_relative_to(root)]:
            del self._read_to[path]

    async def upload(self, upload: Upload) -> None:
        """Upload one checkpoint. Raises ServerUnavailable or ApiError if it can be retried."""
        if not Path(upload.pinned).is_dir():
            upload.dropped = f"{upload.pinned} is gone"
            log.error("checkpoint %s is dropped: %s", upload.key, upload.dropped)
            self._save(upload)
            return
        try:
            await self._send(upload, _archive(Path(upload.pinned)))
        except (Untrusted, FileChanged, ValueError) as error:
            upload.dropped = str(error)
            log.error("checkpoint %s is dropped: %s", upload.key, error)
        self._save(upload)
        remove_tree(Path(upload.pinned))
        self.on_progress()

    async def _send(self, upload: Upload, archive: DirectoryTar) -> None:
        if not upload.tar_sha256:
            upload.tar_sha256 = await asyncio.to_thread(archive.sha256)
            upload.tar_bytes = archive.size
            self._save(upload)
        known = False  # whether the server knows the attempt
        try:
            reply = await self.api.begin_upload(
                upload.attempt_id,
                {
                    "step": upload.step,
                    "manifest_sha256": upload.manifest_sha256,
                    "bytes": upload.tar_bytes,
                    "tar_sha256": upload.tar_sha256,
                    "epoch": upload.epoch,
                    "final": upload.final,
                },
            )
            known = True
            if not reply.stored:
                received = set(reply.received_parts)
                for number in range(-(-archive.size // reply.part_bytes)):
                    if number not in received:
                        part = await asyncio.to_thread(
                            archive.read, number * reply.part_bytes, reply.part_bytes
                        )
                        await self.api.put_part(
                            reply.upload_id, number, part, sha256=hashlib.sha256(part).hexdigest()
                        )
                reply = await self.api.complete_upload(reply.upload_id)
        except ApiError as refusal:
            if refusal.code != "stale_epoch" and (known or refusal.status not in GONE_STATUSES):
                raise
            upload.dropped = str(refusal)
            log.warning("checkpoint %s is dropped: %s", upload.key, refusal)
        else:
            if not reply.stored:
                raise ServerUnavailable(
                    f"checkpoint {upload.key}: all parts are there, the server has not stored it yet"
                )
            upload.stored = True
            log.info("checkpoint %s is stored, %d bytes", upload.key, upload.tar_bytes)

    async def _sleep_scanning(self, seconds: float, poll_seconds: float) -> None:
        """Wait and keep pinning: the trainer prunes checkpoints at the same time."""
        remaining = seconds
        while remaining > 0:
            nap = min(poll_seconds, remaining)
            await asyncio.sleep(nap)
            remaining -= nap
            self.scan()

    def _read(self, record: JobRecord, outbox: GrowingFile) -> None:
        begin = self._read_to.get(outbox.path, 0)
        with outbox.open() as file:
            size = os.fstat(file.fileno()).st_size
            end = whole_lines(file, size) if size > begin else begin
            file.seek(begin)
            offset = begin
            while offset < end:
                line = file.readline(LONGEST_LINE)
                if not line:
                    break  # truncated while it was read
                if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    offset = skip_line(file, offset, end)
                    file.seek(offset)
                    continue
                offset += len(line)
                if TAG in line:
                    found = _checkpoint_line(line)
                    if found is not None:
                        self._add(record, outbox.name, offset, found)
        self._read_to[outbox.path] = max(begin, end)

    def _add(self, record: JobRecord, file: str, end: int, line: CheckpointLine) -> None:
        source = Path(line.directory)
        upload = Upload(
            run_id=record.run_id,
            attempt_id=record.attempt_id,
            epoch=record.epoch,
            job_id=record.job_id,
            outbox_file=file,
            outbox_end=end,
            step=line.step,
            manifest_sha256=line.manifest_sha256,
            final=line.final,
            pinned=str(self.data.attempt(record.attempt_id) / "pinned" / f"step-{line.step:08d}"),
        )
        if upload.key in self.uploads:
            known = self.uploads[upload.key]
            if line.final and not known.final:  # the same checkpoint, announced again as final
                known.final, known.outbox_file, known.outbox_end = True, file, end
                self._save(known)
            return
        try:
            if not pin(self.data.attempt(record.attempt_id), source, Path(upload.pinned)):
                upload.dropped = f"{source} was gone before it could be pinned"
        except (Untrusted, ValueError) as error:  # ValueError: invalid file name
            upload.dropped = str(error)
        if upload.dropped:
            log.error("checkpoint %s is not uploaded: %s", upload.key, upload.dropped)
        self.uploads[upload.key] = upload
        self._save(upload)

    def _save(self, upload: Upload) -> None:
        write_json(self._record(upload), upload)

    def _record(self, upload: Upload) -> Path:
        return self.data.uploads / f"{upload.key}.json"


def pin(attempt: Path, source: Path, target: Path) -> bool:
    """Hard-link a committed checkpoint atomically; return False if it no longer exists.

    Raises Untrusted unless it is inside the attempt's checkpoint directory and has only directories and regular files:
    the job may have placed links there.
    """
    if (target / MANIFEST_FILE).is_file():
        return True  # pinned before a restart of the agent
    checkpoints = attempt / "checkpoints"
    if not source.is_relative_to(checkpoints) or source == checkpoints:
        raise Untrusted(f"{source} is not inside the attempt's folder {checkpoints}")
    building = target.with_name(f".{target.name}")
    if building.exists():
        remove_tree(building)
    building.mkdir(parents=True)
    try:
        with directory_below(checkpoints, *source.relative_to(checkpoints).parts) as folder:
            _link(folder, building, shown=source, depth=0)
    except FileNotFoundError:
        shutil.rmtree(building, ignore_errors=True)
        return False
    except Untrusted:
        shutil.rmtree(building, ignore_errors=True)
        raise
    if not (building / MANIFEST_FILE).is_file():  # the manifest is written last and removed first
        shutil.rmtree(building)
        return False
    building.rename(target)
    return True


def _archive(pinned: Path) -> DirectoryTar:
    """Raises Untrusted for files larger than the disk: they are sparse, and reading them would take forever."""
    archive = DirectoryTar(pinned)
    if archive.size > shutil.disk_usage(pinned).total:
        raise Untrusted(f"{pinned} has {archive.size} bytes, more than its disk")
    return archive


def _link(folder: int, target: Path, *, shown: Path, depth: int) -> None:
    """Link the files of a directory into `target`, then check each there, where the job cannot replace it."""
    if depth > DEEPEST:
        raise Untrusted(f"{shown} is nested deeper than {DEEPEST} folders")
    owner = os.fstat(folder).st_uid
    for name in os.listdir(folder):
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            (target / name).mkdir()
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                _link(below, target / name, shown=shown / name, depth=depth + 1)
            finally:
                os.close(below)
            continue
        os.link(name, target / name, src_dir_fd=folder, follow_symlinks=False)
        linked = (target / name).lstat()
        if not stat.S_ISREG(linked.st_mode) or linked.st_uid != owner:
            raise Untrusted(f"{shown / name} is not a regular file of its job")


def _checkpoint_line(line: bytes) -> CheckpointLine | None:
    try:
        return msgspec.json.decode(line, type=CheckpointLine)
    except msgspec.ValidationError:
        return None  # another kind of line with the tag in a string
