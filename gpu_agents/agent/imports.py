"""Models that this node fetches from a hub: an importer process, then one deterministic tar to the store, in parts.

One at a time. What is broken off, by an outage or by this agent's own restart, is gone on with: the importer keeps
parts of files, the server parts of the tar.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpu_agents.agent import side_process
from gpu_agents.agent.api import AgentApi, Refused, Unreachable
from gpu_agents.agent.records import read_json, write_json
from gpu_agents.agent.settings import DataDirectory
from oolong.client.directory_tar import DirectoryTar
from oolong.contracts.model_imports import (
    ORDER_FILE,
    PROGRESS_FILE,
    RESULT_FILE,
    ImportProgress,
    ImportResult,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

REPORT_SECONDS = 5.0
# How this node reaches the world outside; nothing else of the agent's environment goes along.
PASSED_ON = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")


class ModelImports:
    def __init__(self, api: AgentApi, data: DataDirectory, hub_hosts: Sequence[str] = ()) -> None:
        self._api, self._data, self._hub_hosts = api, data, hub_hosts
        self._task: asyncio.Task[None] | None = None

    def wanted(self, imports: Sequence[str]) -> None:
        """Told at each heartbeat: those of this node, then one that waits for a node."""
        if imports and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._do(imports[0]), name=f"import {imports[0]}")
        elif not imports and self._task is None and self._data.imports.exists():
            shutil.rmtree(self._data.imports)  # of an import that ended elsewhere

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _do(self, import_id: str) -> None:
        folder = self._data.model_import(import_id)
        try:
            await self._fetch_store_or_fail(import_id, folder)
        except Unreachable as error:
            log.warning("import %s waits for the control plane: %s", import_id, error)
            return  # the next heartbeat names it again
        except Refused as refusal:
            log.warning("import %s is not this node's any more: %s", import_id, refusal)
        shutil.rmtree(folder, ignore_errors=True)

    async def _fetch_store_or_fail(self, import_id: str, folder: Path) -> None:
        """What nobody would do better ends the import, with the reason; Refused then: it is not this node's."""
        try:
            await self._fetch_and_store(import_id, folder)
        except Refused as refusal:
            if refusal.status == 404 or refusal.code == "stale_epoch":
                raise
            await self._failed(import_id, f"the control plane refuses it: {refusal}")
        except OSError as error:
            await self._failed(import_id, f"the node cannot keep it: {error}")

    async def _fetch_and_store(self, import_id: str, folder: Path) -> None:
        order = await self._api.begin_import(import_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / RESULT_FILE).exists():
            write_json(folder / ORDER_FILE, order)
            await self._run_importer(import_id, folder)
        if not (folder / RESULT_FILE).exists():
            await self._failed(import_id, f"the importer died: {side_process.last_words(folder)}")
            return
        result = read_json(folder / RESULT_FILE, ImportResult)
        if result.error:
            await self._failed(import_id, result.error)
        else:
            await self._store(import_id, folder, result.commit)

    async def _run_importer(self, import_id: str, folder: Path) -> None:
        process = await side_process.start(
            "gpu_agents.hf_import", folder, self._hub_hosts, home=self._data.home, passed_on=PASSED_ON
        )
        ended = asyncio.create_task(process.wait(), name="importer")
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=REPORT_SECONDS)
                await self._report(import_id, folder)
        finally:
            if not ended.done():
                process.kill()
                await ended

    async def _report(self, import_id: str, folder: Path) -> None:
        """The server may be away meanwhile; what it refuses ends the import here."""
        path = folder / PROGRESS_FILE
        progress = read_json(path, ImportProgress) if path.exists() else ImportProgress()
        try:
            await self._api.report_import(import_id, progress)
        except Unreachable as error:
            log.info("progress of import %s is not told: %s", import_id, error)

    async def _reporting(self, import_id: str, folder: Path, work: Coroutine[Any, Any, T]) -> T:
        """Do what takes long and go on reporting beside it: the server gives the imports of silent nodes away."""
        task = asyncio.create_task(work, name=f"work of import {import_id}")
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=REPORT_SECONDS)
                if not task.done():
                    await self._report_beside(import_id, folder, task)
            return await task
        finally:
            task.cancel()

    async def _report_beside(self, import_id: str, folder: Path, task: asyncio.Task[Any]) -> None:
        try:
            await self._report(import_id, folder)
        except Refused:
            if not task.done():  # else the import has just ended well, and needs no report
                raise

    async def _store(self, import_id: str, folder: Path, commit: str) -> None:
        archive = DirectoryTar(folder / "model")
        sha256 = await self._reporting(import_id, folder, asyncio.to_thread(archive.sha256))
        reply = await self._api.begin_import_upload(
            import_id, {"commit": commit, "tar_sha256": sha256, "bytes": archive.size}
        )
        received = set(reply.received_parts)
        for number in range(-(-archive.size // reply.part_bytes) if not reply.stored else 0):
            if number not in received:
                part = await asyncio.to_thread(archive.read, number * reply.part_bytes, reply.part_bytes)
                checksum = hashlib.sha256(part).hexdigest()
                await self._api.put_import_part(import_id, number, part, sha256=checksum)
        await self._reporting(import_id, folder, self._complete(import_id))
        log.info("import %s is stored, %d bytes at %s", import_id, archive.size, commit)

    async def _complete(self, import_id: str) -> None:
        """Again, as long as the server asks for it: it may still be at what an earlier request of ours began."""
        while True:
            try:
                await self._api.complete_import(import_id)
                return
            except Unreachable as error:
                if error.retry_after is None:
                    raise
                await asyncio.sleep(error.retry_after)

    async def _failed(self, import_id: str, message: str) -> None:
        log.warning("import %s failed: %s", import_id, message)
        await self._api.fail_import(import_id, message[:2000].replace("\x00", "\ufffd"))
