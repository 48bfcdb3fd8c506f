"""Prepare attempts: fetch inputs, check ports, write `attempt.json`."""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from gpu_agents.agent import launch
from gpu_agents.agent.api import AgentApi, ApiError
from gpu_agents.agent.artifacts import ArtifactError, Cache, checkpoint_directory, model_directory
from gpu_agents.agent.isolation.node import IsolationError, NodeIsolation
from gpu_agents.agent.isolation.uids import NoUid
from gpu_agents.agent.launch import InputPaths
from gpu_agents.agent.merged_models import adapter_directory, merged_key
from gpu_agents.agent.reconcile import Inputs, Preparation
from gpu_agents.agent.settings import AgentSettings, DataDirectory
from oolong.contracts.agent import Artifact, DesiredAttempt
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.model_paths import root_of
from oolong.merging.directories import merge_directories
from oolong.merging.tensors import MergeError

log = logging.getLogger(__name__)


class ModelUnusable(Exception):
    """The model's directory cannot be loaded."""


class Preparer:
    """Runs one task per attempt; `inputs` holds their states. `on_progress` is called when one finishes."""

    def __init__(
        self,
        settings: AgentSettings,
        data: DataDirectory,
        api: AgentApi,
        *,
        on_progress: Callable[[], None],
        isolation: NodeIsolation,
    ) -> None:
        self.inputs: dict[str, Inputs] = {}
        self._settings = settings
        self._data = data
        self._api = api
        self._on_progress = on_progress
        self._isolation = isolation
        self._cache = Cache(data.cache, limit_bytes=settings.cache_limit_bytes)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def begin(self, attempt: DesiredAttempt, *, begun: bool, wanted: Sequence[DesiredAttempt]) -> None:
        """Start preparing. `begun`: its jobs already run and use its ports. Inputs of `wanted` stay cached."""
        self.inputs[attempt.attempt_id] = Inputs(Preparation.RUNNING)
        task = asyncio.create_task(
            self._prepare(attempt, begun=begun, wanted=wanted), name=f"prepare {attempt.attempt_id}"
        )
        task.add_done_callback(lambda task: self._fail_on_error(attempt.attempt_id, task))
        self._tasks[attempt.attempt_id] = task

    def fetched_bytes(self, attempt: DesiredAttempt) -> tuple[int, int]:
        """Bytes of the attempt's inputs on this node, and in total."""
        inputs = {artifact.sha256: artifact for artifact in _artifacts(attempt)}.values()
        return sum(self._cache.fetched_bytes(artifact) for artifact in inputs), sum(a.bytes for a in inputs)

    def keep_only(self, wanted: set[str]) -> None:
        """Drop attempts that are no longer desired."""
        for attempt_id in [attempt_id for attempt_id in self.inputs if attempt_id not in wanted]:
            del self.inputs[attempt_id]
            task = self._tasks.pop(attempt_id, None)
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _prepare(
        self, attempt: DesiredAttempt, *, begun: bool, wanted: Sequence[DesiredAttempt]
    ) -> None:
        """Fetch the inputs, check that the ports are free, and write attempt.json."""
        try:
            self._isolation.require_for(attempt.sources)
            self._evict(wanted)
            dataset, evaluation, resume = await asyncio.gather(
                self._cache.fetch(self._api, attempt.dataset),
                self._optional(attempt.evaluation),
                self._optional(attempt.resume),
            )
            sources = {
                kind: await self._cache.fetch(self._api, artifact)
                for kind, artifact in attempt.sources.items()
            }
            inputs = InputPaths(
                dataset_file=dataset,
                source_files=sources,
                evaluation_file=evaluation,
                resume_directory=checkpoint_directory(resume) if resume else None,
                model_directory=await self._model(attempt),
            )
            conflict = "" if begun else launch.attempt_port_conflict(attempt)
            if conflict:
                raise ArtifactError(conflict)
            launch.write_attempt(
                self._data,
                attempt,
                inputs,
                node_python=self._settings.node_python,
                device=self._settings.device,
                slots_per_gpu=self._settings.slots_per_gpu,
                uid=self._isolation.uid_for(self._data.attempt(attempt.attempt_id)),
            )
        except ModelUnusable as error:
            self.inputs[attempt.attempt_id] = Inputs(Preparation.FAILED, EndReason.MODEL_INVALID, str(error))
        except (ArtifactError, ApiError, NoUid, IsolationError, OSError) as error:
            self.inputs[attempt.attempt_id] = Inputs(Preparation.FAILED, message=str(error))
        else:
            self.inputs[attempt.attempt_id] = Inputs(Preparation.READY)
        self._on_progress()

    def _fail_on_error(self, attempt_id: str, task: asyncio.Task[None]) -> None:
        """Fail the attempt on unexpected errors; otherwise it would hold its slots without starting."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("the preparation of %s failed", attempt_id, exc_info=error)
        self.inputs[attempt_id] = Inputs(Preparation.FAILED, message=f"{type(error).__name__}: {error}")
        self._on_progress()

    async def _optional(self, artifact: Artifact | None) -> Path | None:
        return None if artifact is None else await self._cache.fetch(self._api, artifact)

    async def _model(self, attempt: DesiredAttempt) -> Path:
        base = await self._base_model(attempt)
        if not attempt.adapters:
            return base
        contents = [await self._cache.fetch(self._api, artifact) for artifact in attempt.adapters]
        try:
            adapters = [adapter_directory(content) for content in contents]
            return await self._cache.build(
                merged_key(attempt), lambda target: merge_directories(base, adapters, target)
            )
        except (ArtifactError, MergeError) as error:
            raise ModelUnusable(str(error)) from error

    async def _base_model(self, attempt: DesiredAttempt) -> Path:
        if attempt.model is not None:
            content = await self._cache.fetch(self._api, attempt.model)
            try:
                return model_directory(content)
            except ArtifactError as error:
                raise ModelUnusable(str(error)) from error
        return self._offered_model(attempt)

    def _offered_model(self, attempt: DesiredAttempt) -> Path:
        """Check that the path lies in a model root of this node, and that its files are those that were checked."""
        path, node = Path(attempt.model_path), self._settings.name
        root = root_of(attempt.model_path, self._settings.model_roots)
        if root is None:
            raise ModelUnusable(f"node {node} offers no directory with {attempt.model_path!r} (--model-root)")
        bounds = Path(root).resolve()  # links must stay inside it, as in the model check
        for name in ("", "config.json", *attempt.model_files):
            if not (path / name).resolve().is_relative_to(bounds):
                raise ModelUnusable(f"{path / name} leads out of {root}, a model root of node {node}")
        if not (path / "config.json").is_file():
            raise ModelUnusable(f"model path {attempt.model_path!r} has no config.json on node {node}")
        for name, size in attempt.model_files.items():
            file = path / name
            found = file.stat().st_size if file.is_file() else None
            if found != size:
                state = "does not exist" if found is None else f"has {found} bytes"
                raise ModelUnusable(
                    f"{file} {state} on node {node}, it had {size} bytes when the model was checked: register it again"
                )
            if self._isolation.uids is not None and not file.stat().st_mode & stat.S_IROTH:
                raise ModelUnusable(
                    f"{file} on node {node} is not readable by everyone, and jobs have uids of their own there: "
                    f"chmod -R o+rX {root}"
                )
        return path

    def _evict(self, wanted: Sequence[DesiredAttempt]) -> None:
        in_use = {artifact.sha256 for attempt in wanted for artifact in _artifacts(attempt)}
        in_use |= {merged_key(attempt) for attempt in wanted if attempt.adapters}
        for sha256 in self._cache.evict(in_use=in_use):
            log.info("evicted artifact %s from the cache", sha256[:12])


def _artifacts(attempt: DesiredAttempt) -> list[Artifact]:
    inputs = (attempt.dataset, attempt.evaluation, attempt.model, attempt.resume)
    return [
        *(artifact for artifact in inputs if artifact is not None),
        *attempt.adapters,
        *attempt.sources.values(),
    ]
