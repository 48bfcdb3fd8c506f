"""Copies published weights from the trainer's node, for engines on other nodes.

All workers of an attempt on one node share a directory: one of them fetches a version, the others wait for it.
It arrives in buckets, each compared with its sha256 in the manifest, and is renamed into place once it is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import msgspec

from gpu_agents.rollout.worker.manifest import MANIFEST, InvalidWeights, ManifestFile, decode_manifest
from oolong.contracts.rollout import PublishedWeights
from oolong.system.backoff import Backoff
from oolong.system.bucket_hashes import BUCKET_BYTES
from oolong.system.pinned_tls import client_context
from oolong.system.rpc import RETRY_TIMEOUT_SECONDS, RpcUnavailable

log = logging.getLogger(__name__)

CONCURRENT_BUCKETS = 4
MAX_DAMAGED = 3  # times that one bucket may arrive with another hash
MANIFEST_BYTES = 64 << 20
LOCK_POLL_SECONDS = 0.1
REQUEST_SECONDS = 300.0  # of one bucket
TEMPORARY = ".fetching-"


class WeightFetcher:
    """`url` and `certificate` are those of the WeightServer on the trainer's node."""

    def __init__(
        self,
        *,
        url: str,
        token: str,
        certificate: str,
        directory: Path,
        retry_seconds: float = RETRY_TIMEOUT_SECONDS,
    ) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._tls = client_context(certificate)
        self._directory = directory
        self._retry_seconds = retry_seconds
        self._http: aiohttp.ClientSession | None = None

    @contextlib.asynccontextmanager
    async def hold(self, weights: PublishedWeights) -> AsyncIterator[PublishedWeights]:
        """The version in a directory of this node, which stays while it is held; then older versions that no worker
        holds are removed. Raises InvalidWeights if the trainer's node does not send what was announced, and
        RpcUnavailable."""
        target = self._directory / Path(weights.directory).name
        while (held := _hold_directory(target)) is None:
            async with self._lock():
                if not target.exists():
                    await self._fetch(weights, target)
        try:
            yield msgspec.structs.replace(weights, directory=str(target))
        finally:
            os.close(held)
        await asyncio.to_thread(_remove_older, target)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    @contextlib.asynccontextmanager
    async def _lock(self) -> AsyncIterator[None]:
        """One fetch at a time on this node. The lock of a worker that crashes is released."""
        descriptor = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not _try_lock(descriptor, fcntl.LOCK_EX):
                await asyncio.sleep(LOCK_POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)

    async def _fetch(self, weights: PublishedWeights, target: Path) -> None:
        began = time.monotonic()
        for leftover in self._directory.glob(f"{TEMPORARY}*"):
            await asyncio.to_thread(shutil.rmtree, leftover)
        temporary = self._directory / f"{TEMPORARY}{target.name}"
        temporary.mkdir()
        content = await self._get(f"{target.name}/{MANIFEST}", 0, MANIFEST_BYTES)
        manifest = decode_manifest(content, weights)
        permits = asyncio.Semaphore(CONCURRENT_BUCKETS)
        try:
            async with asyncio.TaskGroup() as tasks:
                for file in manifest.files:
                    with (temporary / file.name).open("wb") as created:
                        created.truncate(file.bytes)
                    for number, sha256 in enumerate(file.bucket_sha256):
                        bucket = self._fetch_bucket(temporary / file.name, file, number, sha256, permits)
                        tasks.create_task(bucket)
        except* (InvalidWeights, RpcUnavailable, OSError) as errors:
            raise _first(errors) from errors
        (temporary / MANIFEST).write_bytes(content)
        temporary.rename(target)
        total, seconds = sum(file.bytes for file in manifest.files), time.monotonic() - began
        log.info("version %d: %.1f MB fetched in %.2f s", weights.version, total / 1e6, seconds)

    async def _fetch_bucket(
        self, path: Path, file: ManifestFile, number: int, sha256: str, permits: asyncio.Semaphore
    ) -> None:
        start = number * BUCKET_BYTES
        length = min(BUCKET_BYTES, file.bytes - start)
        if length < 0:
            raise InvalidWeights(
                f"the manifest lists {len(file.bucket_sha256)} buckets of {file.name}, too many"
            )
        async with permits:
            for _ in range(MAX_DAMAGED):
                content = await self._get(
                    f"{path.parent.name.removeprefix(TEMPORARY)}/{file.name}", start, length
                )
                if await asyncio.to_thread(_sha256, content) == sha256:
                    await asyncio.to_thread(_write_at, path, start, content)
                    return
                log.warning("bucket %d of %s arrived damaged", number, file.name)
        raise InvalidWeights(f"{file.name}: bucket {number} arrived {MAX_DAMAGED} times with another sha256")

    async def _get(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes of a file from `start` on. Lost connections are retried for `retry_seconds`."""
        if length == 0:
            return b""
        deadline = time.monotonic() + self._retry_seconds
        backoff = Backoff(initial=0.1, maximum=2.0)
        while True:
            try:
                return await self._get_once(name, start, length)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise RpcUnavailable(
                        f"the weights at {self._url} on the trainer's node were not sent for "
                        f"{self._retry_seconds:g} s: {error!r}"
                    ) from error
            await asyncio.sleep(backoff.failed())

    async def _get_once(self, name: str, start: int, length: int) -> bytes:
        if self._http is None:
            self._http = aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {self._token}", "Accept-Encoding": "identity"},
                connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
            )
        limits = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=10)
        headers = {"Range": f"bytes={start}-{start + length - 1}"}
        async with self._http.get(f"{self._url}/{name}", headers=headers, timeout=limits) as response:
            if response.status != 206:
                said = (await response.content.read(300)).decode(errors="replace")
                raise InvalidWeights(
                    f"{name} cannot be fetched from the trainer's node: HTTP {response.status}: {said}"
                )
            return await response.read()


def _hold_directory(path: Path) -> int | None:
    """A descriptor that keeps `_remove_older` from removing the directory; None if there is no such directory."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    if _try_lock(descriptor, fcntl.LOCK_SH) and _is_at(descriptor, path):
        return descriptor
    os.close(descriptor)
    return None


def _remove_older(newest: Path) -> None:
    """Remove the versions before this one that no worker holds."""
    for path in _older_versions(newest):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another worker removed it
        try:
            if _try_lock(descriptor, fcntl.LOCK_EX) and _is_at(descriptor, path):
                # Renamed first: half a directory must not have a version's name.
                renamed = path.with_name(f".deleted-{path.name}")
                path.rename(renamed)
                shutil.rmtree(renamed)
        finally:
            os.close(descriptor)


def _older_versions(newest: Path) -> Iterator[Path]:
    return (path for path in newest.parent.glob("v*") if path.name < newest.name)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open directory is the one at this path, which another worker may have renamed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write_at(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)


def _first(errors: BaseExceptionGroup[Exception]) -> Exception:
    error = errors.exceptions[0]
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
