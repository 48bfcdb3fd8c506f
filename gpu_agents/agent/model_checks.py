"""Validate models below this node's model roots, one at a time, in a child process."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from gpu_agents.agent import side_process
from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
from gpu_agents.agent.records import read_json, write_json
from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.model_report import ORDER_FILE, RESULT_FILE, Fault, ModelReport
from oolong.model_validation.errors import printable

log = logging.getLogger(__name__)

REPORT_SECONDS = 5.0
KILL_SECONDS = 10.0  # a process blocked on a file system may not exit at once


class ModelChecks:
    def __init__(self, api: AgentApi, data: DataDirectory, roots: Sequence[str]) -> None:
        self._api, self._data, self._roots = api, data, tuple(roots)
        self._task: asyncio.Task[None] | None = None

    def assign(self, checks: Sequence[str]) -> None:
        """Called at each heartbeat with this node's checks, then one that waits for a node."""
        if checks and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run(checks[0]), name=f"model check {checks[0]}")

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, check_id: str) -> None:
        folder = self._data.model_check(check_id)
        try:
            await self._run_or_fail(check_id, folder)
        except ServerUnavailable as error:
            log.warning("model check %s waits for the control plane: %s", check_id, error)
            return  # the next heartbeat assigns it again, and the result is kept
        except ApiError as refusal:
            log.warning("model check %s no longer belongs to this node: %s", check_id, refusal)
        shutil.rmtree(folder, ignore_errors=True)

    async def _run_or_fail(self, check_id: str, folder: Path) -> None:
        """Run the check; report permanent errors to the server. Raises ApiError if the check is not this node's."""
        try:
            await self._check_and_report(check_id, folder)
        except ApiError as refusal:
            if refusal.status == 404 or refusal.code == "stale_epoch":
                raise
            await self._failed(check_id, f"the control plane rejected the report: {refusal}")
        except (OSError, ValueError) as error:
            await self._failed(check_id, f"the node cannot check it: {error}")

    async def _failed(self, check_id: str, message: str) -> None:
        log.warning("model check %s failed: %s", check_id, message)
        await self._api.complete_model_check(check_id, _unusable("check_failed", message))

    async def _check_and_report(self, check_id: str, folder: Path) -> None:
        order = await self._api.begin_model_check(check_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / RESULT_FILE).exists():
            write_json(folder / ORDER_FILE, order)
            await self._run_process(check_id, folder)
        await self._api.complete_model_check(check_id, _report(folder))
        log.info("model check %s of %s is reported", check_id, order.path)

    async def _run_process(self, check_id: str, folder: Path) -> None:
        process = await side_process.start(
            "gpu_agents.model_check", folder, self._roots, home=self._data.home
        )
        ended = asyncio.create_task(process.wait(), name="model check process")
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=REPORT_SECONDS)
                if not ended.done():
                    await self._report_progress(check_id)
        finally:
            if not ended.done():
                process.kill()
                await asyncio.wait({ended}, timeout=KILL_SECONDS)

    async def _report_progress(self, check_id: str) -> None:
        """Report that the check runs; outages are ignored, and a rejection ends it."""
        try:
            await self._api.report_model_check(check_id)
        except ServerUnavailable as error:
            log.info("progress of model check %s was not reported: %s", check_id, error)


def _report(folder: Path) -> ModelReport:
    if (folder / RESULT_FILE).exists():
        return read_json(folder / RESULT_FILE, ModelReport)
    return _unusable("check_died", f"the check process crashed: {side_process.tail_output(folder)}")


def _unusable(code: str, message: str) -> ModelReport:
    message = printable(message)
    return ModelReport(message=message, faults=[Fault("/path", code, message)])
