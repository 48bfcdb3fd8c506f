"""Fetch inputs: resumable downloads, verified by sha256, in a content-addressed cache with a size limit."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import lzma
import os
import shutil
import tarfile
import time
import zlib
from collections.abc import Callable, Collection
from pathlib import Path

from gpu_agents.agent.api import AgentApi, ServerUnavailable
from oolong.contracts.agent import Artifact
from oolong.system.backoff import Backoff

log = logging.getLogger(__name__)

PLAIN_FILES = frozenset({"dataset", "source"})  # kinds of artifact that are not archives
CONTENT = "content"  # name of the file, or of the unpacked directory, inside cache/<sha256>/


class ArtifactError(Exception):
    """An input cannot be used."""


class Cache:
    """cache/<sha256>/content: a plain file, or an unpacked archive (model, checkpoint). Complete or absent."""

    def __init__(self, root: Path, *, limit_bytes: int) -> None:
        self._root = root
        self._limit_bytes = limit_bytes
        self._fetching: dict[str, asyncio.Task[Path]] = {}
        self._remove_leftovers()

    async def fetch(self, api: AgentApi, artifact: Artifact) -> Path:
        """Return the artifact's content; concurrent calls share one download.

        Retries while the control plane is unavailable. Raises ArtifactError if the checksum is wrong or the archive
        is invalid, and ApiError if the server does not have the artifact.
        """
        task = self._fetching.get(artifact.sha256)
        if task is None:
            task = asyncio.create_task(self._fetch(api, artifact), name=f"fetch {artifact.sha256[:12]}")
            self._fetching[artifact.sha256] = task
            task.add_done_callback(lambda _: self._fetching.pop(artifact.sha256, None))
        return await asyncio.shield(task)

    async def build(self, key: str, make: Callable[[Path], None]) -> Path:
        """Return what `make` writes into a new directory, kept under `key`. Concurrent calls make it once."""
        task = self._fetching.get(key)
        if task is None:
            task = asyncio.create_task(self._build(key, make), name=f"build {key[:12]}")
            self._fetching[key] = task
            task.add_done_callback(lambda _: self._fetching.pop(key, None))
        return await asyncio.shield(task)

    async def _build(self, key: str, make: Callable[[Path], None]) -> Path:
        entry, building = self._root / _checked(key), self._root / f".building-{key}"
        if (entry / CONTENT).exists():
            now = time.time()
            os.utime(entry, (now, now))
            return entry / CONTENT
        shutil.rmtree(building, ignore_errors=True)
        (building / CONTENT).mkdir(parents=True)
        await asyncio.to_thread(make, building / CONTENT)
        _let_all_read(building)
        building.rename(entry)
        return entry / CONTENT

    def evict(self, *, in_use: Collection[str]) -> list[str]:
        """Remove the least recently used entries above the size limit, except those in use. Returns the removed."""
        entries = sorted(
            (entry for entry in self._root.iterdir() if entry.is_dir() and not entry.name.startswith(".")),
            key=lambda entry: entry.stat().st_mtime,
        )
        sizes = {entry: directory_bytes(entry) for entry in entries}
        total = sum(sizes.values())
        removed = []
        for entry in entries:
            if total <= self._limit_bytes:
                break
            if entry.name in in_use or entry.name in self._fetching:
                continue
            deleting = entry.with_name(f".deleting-{entry.name}")
            entry.rename(deleting)  # renamed first: a half-deleted entry must not look complete
            shutil.rmtree(deleting)
            total -= sizes[entry]
            removed.append(entry.name)
        return removed

    def fetched_bytes(self, artifact: Artifact) -> int:
        """Bytes of the artifact on this node."""
        entry = self._root / _checked(artifact.sha256)
        if (entry / CONTENT).exists():
            return artifact.bytes
        try:
            return min(artifact.bytes, (self._root / f".part-{artifact.sha256}").stat().st_size)
        except FileNotFoundError:
            return 0

    def _remove_leftovers(self) -> None:
        """Remove unfinished deletions and extractions of a killed agent. Partial downloads resume."""
        for leftover in self._root.glob(".*-*"):
            purpose, _, sha256 = leftover.name[1:].partition("-")
            if purpose in ("deleting", "building"):
                shutil.rmtree(leftover)
            elif purpose == "part" and (self._root / sha256).exists():
                leftover.unlink()

    async def _fetch(self, api: AgentApi, artifact: Artifact) -> Path:
        entry = self._root / _checked(artifact.sha256)
        content = entry / CONTENT
        if content.exists():
            now = time.time()
            os.utime(entry, (now, now))
            return content
        part = self._root / f".part-{artifact.sha256}"
        await self._download(api, artifact, part)
        building = self._root / f".building-{artifact.sha256}"
        await asyncio.to_thread(_build_entry, artifact, part, building)
        building.rename(entry)
        part.unlink(missing_ok=True)
        return content

    async def _download(self, api: AgentApi, artifact: Artifact, part: Path) -> None:
        """Download the rest of `part`, and verify the whole."""
        backoff = Backoff(initial=0.5, maximum=15.0)
        digest = hashlib.sha256()
        have = await asyncio.to_thread(_hash_into, digest, part) if part.exists() else 0
        while have < artifact.bytes:
            try:
                async with api.artifact(artifact.sha256, offset=have) as (begins, chunks):
                    if begins != have:  # the server sent the whole file: restart
                        have, digest = 0, hashlib.sha256()
                    with part.open("ab" if have else "wb") as file:
                        async for chunk in chunks:
                            file.write(chunk)
                            digest.update(chunk)
                            have += len(chunk)
                            backoff.succeeded()
                if have < artifact.bytes:
                    raise ServerUnavailable(
                        f"artifact {artifact.sha256[:12]} ended at {have} of {artifact.bytes} bytes"
                    )
            except ServerUnavailable as error:
                wait = backoff.failed(error.retry_after)
                log.warning("artifact %s: %s; again in %.1f s", artifact.sha256[:12], error, wait)
                await asyncio.sleep(wait)
        if have != artifact.bytes or digest.hexdigest() != artifact.sha256:
            part.unlink()
            raise ArtifactError(
                f"{artifact.kind} {artifact.sha256}: {have} bytes with sha256 {digest.hexdigest()} arrived, "
                f"{artifact.bytes} bytes were promised; the store's copy is damaged or was replaced"
            )


def model_directory(content: Path) -> Path:
    """The Hugging Face directory inside an unpacked model or checkpoint.

    A model archive holds it at the top or in its only folder; a checkpoint holds its export in `hf/`.
    """
    for candidate in (content, content / "hf", *_only_folder(content)):
        if (candidate / "config.json").is_file():
            return candidate
    raise ArtifactError(
        f"the model archive has no config.json at its top, in hf/, or in its only folder; it has {_names(content)}"
    )


def checkpoint_directory(content: Path) -> Path:
    for candidate in (content, *_only_folder(content)):
        if (candidate / "MANIFEST.json").is_file():
            return candidate
    raise ArtifactError(f"the checkpoint archive has no MANIFEST.json; it has {_names(content)}")


def unpack(archive: Path, target: Path) -> None:
    """Unpack a tar: regular files and folders only, all below `target`.

    Links, devices, absolute names and `..` are refused rather than skipped: an archive that has them was not
    made for this.
    """
    target.mkdir()
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                name = Path(member.name)
                if name.is_absolute() or ".." in name.parts:
                    raise ArtifactError(f"the archive names {member.name!r}, which would lie outside of it")
                if member.isdir():
                    (target / name).mkdir(parents=True, exist_ok=True)
                    continue
                source = tar.extractfile(member) if member.isfile() and not member.issparse() else None
                if source is None:
                    raise ArtifactError(
                        f"the archive's {member.name!r} is not a regular file; links and devices are refused"
                    )
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                with source, (target / name).open("xb") as file:
                    shutil.copyfileobj(source, file, 1024 * 1024)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ArtifactError(f"not a readable tar archive: {error}") from error
    except FileExistsError as error:
        raise ArtifactError(f"the archive names {error.filename!r} twice") from error


def directory_bytes(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def _build_entry(artifact: Artifact, part: Path, building: Path) -> None:
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    if artifact.kind in PLAIN_FILES:
        os.link(part, building / CONTENT)
    else:
        try:
            unpack(part, building / CONTENT)
        except ArtifactError as error:
            raise ArtifactError(f"{artifact.kind} {artifact.sha256}: {error}") from error
    _let_all_read(building)


def _let_all_read(entry: Path) -> None:
    """Jobs with their own uids read the entries that are mounted for them; the cache directory itself is private."""
    for folder, _, files in os.walk(entry):
        os.chmod(folder, 0o755)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o644)


def _hash_into(digest: hashlib._Hash, path: Path) -> int:
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(1024 * 1024):
            digest.update(chunk)
            size += len(chunk)
    return size


def _checked(sha256: str) -> str:
    if len(sha256) != 64 or not all(letter in "0123456789abcdef" for letter in sha256):
        raise ArtifactError(f"{sha256!r} is not a sha256")
    return sha256


def _only_folder(content: Path) -> list[Path]:
    entries = list(content.iterdir())
    return entries if len(entries) == 1 and entries[0].is_dir() else []


def _names(content: Path) -> str:
    return ", ".join(sorted(path.name for path in content.iterdir())[:8]) or "nothing"
