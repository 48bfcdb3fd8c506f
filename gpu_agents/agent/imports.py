"""Import models from a hub: an importer process downloads, then the agent uploads a deterministic tar in parts.

One import at a time. Interrupted imports resume: the importer keeps partial files, the server keeps parts of the tar.
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
from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
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
# Network settings; the importer inherits nothing else from the agent's environment.
INHERITED_VARIABLES = ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")


class ModelImports:
    def __init__(self, api: AgentApi, data: DataDirectory, hub_hosts: Sequence[str] = ()) -> None:
        self._api, self._data, self._hub_hosts = api, data, hub_hosts
        self._task: asyncio.Task[None] | None = None

    def assign(self, imports: Sequence[str]) -> None:
        """Called at each heartbeat with this node's imports, then one that waits for a node."""
        if imports and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(imports[0]), name=f"import {imports[0]}")
        elif not imports and self._task is None and self._data.imports.exists():
            shutil.rmtree(self._data.imports)  # left by an import that ended elsewhere

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, import_id: str) -> None:
        folder = self._data.model_import(import_id)
        try:
            await self._run_or_fail(import_id, folder)
        except ServerUnavailable as error:
            log.warning("import %s waits for the control plane: %s", import_id, error)
            return  # the next heartbeat assigns it again
        except ApiError as refusal:
            log.warning("import %s no longer belongs to this node: %s", import_id, refusal)
        shutil.rmtree(folder, ignore_errors=True)

    async def _run_or_fail(self, import_id: str, folder: Path) -> None:
        """Run the import; report permanent errors to the server. Raises ApiError if the import is not this node's."""
        try:
            await self._fetch_and_store(import_id, folder)
        except ApiError as refusal:
            if refusal.status == 404 or refusal.code == "stale_epoch":
                raise
            await self._failed(import_id, f"the control plane rejected it: {refusal}")
        except OSError as error:
            await self._failed(import_id, f"the node cannot store it: {error}")

    async def _fetch_and_store(self, import_id: str, folder: Path) -> None:
        order = await self._api.begin_import(import_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / RESULT_FILE).exists():
            write_json(folder / ORDER_FILE, order)
            await self._run_importer(import_id, folder)
        if not (folder / RESULT_FILE).exists():
            await self._failed(import_id, f"the importer crashed: {side_process.tail_output(folder)}")
            return
        result = read_json(folder / RESULT_FILE, ImportResult)
        if result.error:
            await self._failed(import_id, result.error)
        else:
            await self._store(import_id, folder, result.commit)

    async def _run_importer(self, import_id: str, folder: Path) -> None:
        process = await side_process.start(
            "gpu_agents.hf_import", folder, self._hub_hosts, home=self._data.home, inherit=INHERITED_VARIABLES
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
        """Report progress; outages are ignored, and a rejection ends the import."""
        path = folder / PROGRESS_FILE
        progress = read_json(path, ImportProgress) if path.exists() else ImportProgress()
        try:
            await self._api.report_import(import_id, progress)
        except ServerUnavailable as error:
            log.info("progress of import %s was not reported: %s", import_id, error)

    async def _with_reports(self, import_id: str, folder: Path, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` and report its progress: the server reassigns imports of silent nodes."""
        task = asyncio.create_task(work, name=f"work of import {import_id}")
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=REPORT_SECONDS)
                if not task.done():
                    await self._report_unless_done(import_id, folder, task)
            return await task
        finally:
            task.cancel()

    async def _report_unless_done(self, import_id: str, folder: Path, task: asyncio.Task[Any]) -> None:
        try:
            await self._report(import_id, folder)
        except ApiError:
            if not task.done():  # otherwise the import has just finished
                raise

    async def _store(self, import_id: str, folder: Path, commit: str) -> None:
        archive = DirectoryTar(folder / "model")
        sha256 = await self._with_reports(import_id, folder, asyncio.to_thread(archive.sha256))
        reply = await self._api.begin_import_upload(
            import_id, {"commit": commit, "tar_sha256": sha256, "bytes": archive.size}
        )
        received = set(reply.received_parts)
        for number in range(-(-archive.size // reply.part_bytes) if not reply.stored else 0):
            if number not in received:
                part = await asyncio.to_thread(archive.read, number * reply.part_bytes, reply.part_bytes)
                checksum = hashlib.sha256(part).hexdigest()
                await self._api.put_import_part(import_id, number, part, sha256=checksum)
        await self._with_reports(import_id, folder, self._complete(import_id))
        log.info("import %s is stored, %d bytes at %s", import_id, archive.size, commit)

    async def _complete(self, import_id: str) -> None:
        """Repeat while the server asks for it: it may still process an earlier request."""
        while True:
            try:
                await self._api.complete_import(import_id)
                return
            except ServerUnavailable as error:
                if error.retry_after is None:
                    raise
                await asyncio.sleep(error.retry_after)

    async def _failed(self, import_id: str, message: str) -> None:
        log.warning("import %s failed: %s", import_id, message)
        await self._api.fail_import(import_id, message[:2000].replace("\x00", "\ufffd"))
