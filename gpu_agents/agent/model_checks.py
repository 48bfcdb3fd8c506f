"""Models below directories that this node offers, checked one at a time by a process beside the agent."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_agents.agent.api import AgentApi, Refused, Unreachable
from gpu_agents.agent.launch import ROOT
from gpu_agents.agent.records import read_json, write_json
from gpu_agents.agent.settings import DataDirectory
from oolong.contracts.model_report import ORDER_FILE, RESULT_FILE, Fault, ModelReport

log = logging.getLogger(__name__)

REPORT_SECONDS = 5.0


class ModelChecks:
    def __init__(self, api: AgentApi, data: DataDirectory, roots: Sequence[str]) -> None:
        self._api, self._data, self._roots = api, data, tuple(roots)
        self._task: asyncio.Task[None] | None = None

    def wanted(self, checks: Sequence[str]) -> None:
        """Told at each heartbeat: those of this node, then one that waits for a node."""
        if checks and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._do(checks[0]), name=f"model check {checks[0]}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _do(self, check_id: str) -> None:
        folder = self._data.model_check(check_id)
        try:
            await self._look_and_tell(check_id, folder)
        except Unreachable as error:
            log.warning("model check %s waits for the control plane: %s", check_id, error)
            return  # the next heartbeat names it again, and what was found is still there
        except Refused as refusal:
            log.warning("model check %s is not this node's any more: %s", check_id, refusal)
        shutil.rmtree(folder, ignore_errors=True)

    async def _look_and_tell(self, check_id: str, folder: Path) -> None:
        order = await self._api.begin_model_check(check_id)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (folder / RESULT_FILE).exists():
            write_json(folder / ORDER_FILE, order)
            await self._run_process(check_id, folder)
        await self._api.complete_model_check(check_id, _report(folder))
        log.info("model check %s of %s is told", check_id, order.path)

    async def _run_process(self, check_id: str, folder: Path) -> None:
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(self._data.home), "LANG": "C.UTF-8",
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
        }  # fmt: skip
        with (folder / "said.log").open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gpu_agents.model_check", str(folder), *self._roots,
                env=environment, cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip
        ended = asyncio.create_task(process.wait(), name="model check process")
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=REPORT_SECONDS)
                if not ended.done():
                    await self._still_here(check_id)
        finally:
            if not ended.done():
                process.kill()
                await ended

    async def _still_here(self, check_id: str) -> None:
        """The server may be away meanwhile; what it refuses ends the check here."""
        try:
            await self._api.report_model_check(check_id)
        except Unreachable as error:
            log.info("that model check %s goes on is not told: %s", check_id, error)


def _report(folder: Path) -> ModelReport:
    if (folder / RESULT_FILE).exists():
        return read_json(folder / RESULT_FILE, ModelReport)
    words = (folder / "said.log").read_text(errors="replace").strip().rpartition("\n")[2][:300]
    message = f"the process that looked at it died: {words or 'it said nothing'}"
    return ModelReport(message=message, faults=[Fault("/path", "check_died", message)])
