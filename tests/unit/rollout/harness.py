"""Controller, reward service and workers of one attempt in this process, over real HTTP, around given engines.

Only the engine's process is left out: a worker here is attached to an engine that already serves. `TestTrainer`
stands where the trainer is and publishes versions that exist already.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpu_agents.job import Job
from gpu_agents.rewards.registry import build_reward
from gpu_agents.rewards.reward import Reward
from gpu_agents.rewards.service import InThisProcess, RewardService
from gpu_agents.rollout.chat_template import ChatTemplate
from gpu_agents.rollout.controller.__main__ import build
from gpu_agents.rollout.controller.server import ControllerServer
from gpu_agents.rollout.controller.stall_aware_clock import StallAwareClock
from gpu_agents.rollout.controller.telemetry import ControllerTelemetry
from gpu_agents.rollout.engines.client import EngineClient, ModelLimits
from gpu_agents.rollout.sessions.server import SessionServer
from gpu_agents.rollout.worker.__main__ import expected_tensors, session_server, session_support
from gpu_agents.rollout.worker.concurrency import WindowLimits
from gpu_agents.rollout.worker.config import WorkerConfig
from gpu_agents.rollout.worker.engine_counters import EngineCounters
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.engine_supervisor import ServingTask
from gpu_agents.rollout.worker.episode import EpisodeLimits, Executor, RolloutContext
from gpu_agents.rollout.worker.evaluator import Evaluator, EvaluatorTelemetry
from gpu_agents.rollout.worker.scoring import Scorer
from gpu_agents.rollout.worker.telemetry import WorkerTelemetry
from gpu_agents.rollout.worker.weight_loader import Load, WeightLoader
from gpu_agents.rollout.worker.worker import Worker
from gpu_agents.rollout.workflows.registry import build_workflow
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts import rollout as wire
from oolong.contracts.attempt import AttemptFile, JobFile
from oolong.contracts.lifecycle import JobKind
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.runtime_overrides import LiveFile
from oolong.contracts.telemetry import AnyLine, Outbox
from oolong.system.rpc import RpcClient
from tests.support.outboxes import written_lines
from tests.support.tiny_specs import tiny_run_spec
from tests.support.waiting import eventually

TOKEN = "attempt-token"


def run_spec(**sections: Any) -> RunSpec:
    document: dict[str, Any] = {
        "name": "test",
        "model": {"base_model": "m"},
        "dataset": {"version": "d"},
        "trainer": {"groups_per_step": 4, "minibatches": 1, "total_train_steps": 50},
        "rollout": {"group_size": 2, "max_new_tokens": 30, "engine_max_running_requests": 16},
    }
    for name, section in sections.items():
        document[name] = {**document.get(name, {}), **section} if isinstance(section, dict) else section
    return tiny_run_spec(document)


class AttachedEngine:
    """In place of the supervisor: an engine that serves already, and is not restarted."""

    def __init__(self, client: EngineClient, engine: EngineHandle, loader: ServingTask) -> None:
        self._client, self._engine, self._loader = client, engine, loader

    async def run(self) -> None:
        try:
            await self._loader.keep_current(self._client)
        finally:
            self._engine.close()


@dataclass(frozen=True)
class Parts:
    """What every worker is put together from."""

    options: WorkerConfig
    context: RolloutContext
    loader: WeightLoader
    loads: list[Load]
    controller: RpcClient
    client: EngineClient


@dataclass
class RunningWorker:
    worker: Worker
    engine: EngineHandle
    stop: asyncio.Event
    task: asyncio.Task[str]
    client: EngineClient
    session_server: SessionServer | None = None  # of a run that serves agent sessions; open it before use


@dataclass
class RunningEvaluator:
    stop: asyncio.Event
    task: asyncio.Task[str]
    client: EngineClient


@dataclass
class Harness:
    directory: Path
    spec: RunSpec
    model_directory: Path
    dataset_file: Path
    reward: Reward | None = None
    resume_directory: Path | None = None
    evaluation_file: Path | None = None
    workflow: Workflow | None = None  # in place of the spec's
    run_id: str = "run_1"
    executor: Executor | None = None
    clock: StallAwareClock = field(default_factory=StallAwareClock)  # for the timeouts of claims and engines
    workers: list[RunningWorker] = field(default_factory=list)
    visitors: list[RunningEvaluator] = field(default_factory=list)

    async def __aenter__(self) -> Harness:
        self.directory.mkdir(parents=True, exist_ok=True)
        reward = self.reward or build_reward(self.spec.reward.name, self.spec.reward.options)
        self.reward_service = RewardService(InThisProcess(reward), token=TOKEN)
        reward_port = await self.reward_service.rpc.start("127.0.0.1", 0)
        job = self._job("controller", JobKind.CONTROLLER, controller_port=0, reward_port=reward_port)
        self.controller, template = build(job)
        prompt_of = self.controller.state.prompt_of
        telemetry = ControllerTelemetry(
            job, Outbox(job.directory, 0), template, source_of=lambda row: prompt_of(row).source
        )
        self.telemetry = telemetry
        self.server = ControllerServer(
            self.controller,
            telemetry,
            token=TOKEN,
            began_at=0.0,
            live=LiveFile(self.directory),
            clock=self.clock,
        )
        self._ports = (await self.server.rpc.start("127.0.0.1", 0), reward_port)
        self._ticks = asyncio.create_task(self.server.run_ticks())
        self._peers = [self.peer()]
        self.trainer = TestTrainer(self._peers[0], self.spec)
        return self

    async def __aexit__(self, *_: object) -> None:
        everybody: list[RunningWorker | RunningEvaluator] = [*self.workers, *self.visitors]
        for running in everybody:
            running.stop.set()
        await asyncio.gather(*(running.task for running in everybody), return_exceptions=True)
        self._ticks.cancel()
        for peer in self._peers:
            await peer.close()
        for running in everybody:
            await running.client.close()
        await self.server.rpc.close()
        await self.reward_service.rpc.close()

    def peer(self) -> RpcClient:
        return RpcClient("the controller", f"http://127.0.0.1:{self._ports[0]}", TOKEN, connect_seconds=60)

    def start_worker(
        self,
        engine_port: int,
        api_key: str,
        *,
        index: int = 0,
        change: Callable[[WorkerConfig], WorkerConfig] = lambda options: options,
    ) -> RunningWorker:
        job = self._job(f"rollout-{index}", JobKind.ROLLOUT, *self._ports)
        parts = self._parts(job, engine_port, api_key, change=change)
        context, loader = parts.context, parts.loader
        stop = asyncio.Event()
        sessions = session_support(job, self.spec) if self.spec.serves_sessions else None
        worker = Worker(
            options=parts.options,
            context=context,
            supervisor=AttachedEngine(parts.client, context.engine, loader),  # type: ignore[arg-type]
            loader=loader,
            loads=parts.loads,
            controller=parts.controller,
            telemetry=WorkerTelemetry(job, Outbox(job.directory, 0), context.engine.counters),
            stop=stop,
            sessions=sessions,
        )
        running = RunningWorker(worker, context.engine, stop, asyncio.create_task(worker.run()), parts.client)
        running.session_server = session_server(job, self.spec, sessions) if sessions else None
        self.workers.append(running)
        return running

    def start_evaluator(
        self, engine_port: int, api_key: str, *, task_id: str, index: int = 1
    ) -> RunningEvaluator:
        """An engine beside those of the run, that came for one evaluation."""
        job = self._job(f"evaluator-{index}", JobKind.ROLLOUT, *self._ports)
        parts = self._parts(job, engine_port, api_key)
        engine, stop = parts.context.engine, asyncio.Event()
        evaluator = Evaluator(
            worker_id=parts.options.worker_id,
            task_id=task_id,
            context=parts.context,
            loader=parts.loader,
            controller=parts.controller,
            telemetry=EvaluatorTelemetry(job, Outbox(job.directory, 0), engine.counters),
            stop=stop,
        )
        attached = AttachedEngine(parts.client, engine, evaluator)
        running = RunningEvaluator(stop, asyncio.create_task(evaluator.run(attached)), parts.client)
        self.visitors.append(running)
        return running

    def _parts(
        self,
        job: Job,
        engine_port: int,
        api_key: str,
        *,
        change: Callable[[WorkerConfig], WorkerConfig] = lambda options: options,
    ) -> Parts:
        rollout = self.spec.rollout
        options = change(
            WorkerConfig(
                worker_id=f"{job.job.name}/0",
                group_size=rollout.group_size,
                temperature=rollout.temperature,
                window=WindowLimits(
                    group_size=rollout.group_size,
                    max_rollouts=rollout.engine_max_running_requests,
                    kv_tokens=rollout.engine_max_total_tokens,
                    longest_tokens=rollout.max_prompt_tokens + rollout.max_new_tokens,
                ),
                interruptible=rollout.interruptible,
                pause_mode=rollout.interruption,
                reward_scale=self.spec.reward.scale,
                reward_bias=self.spec.reward.bias,
                reward_timeout_seconds=60.0,
                adapters=self.spec.model.lora is not None,
            )
        )
        config = json.loads((self.model_directory / "config.json").read_text())
        limits = ModelLimits(
            vocabulary=config["vocab_size"], context_tokens=config["max_position_embeddings"]
        )
        client = EngineClient(engine_port, api_key, limits)
        template = ChatTemplate(self.model_directory)
        counters = EngineCounters(clock=time.monotonic)
        engine = EngineHandle(counters, loads_between_requests=options.loads_between_requests)
        controller = self.peer()
        service = RpcClient(
            "the reward service", f"http://127.0.0.1:{self._ports[1]}", TOKEN, connect_seconds=60
        )
        self._peers += [controller, service]
        loads: list[Load] = []
        loader = WeightLoader(
            options=options,
            engine=engine,
            controller=controller,
            expected=expected_tensors(self.model_directory, self.spec),
            probe_prompt=template.encode("<|user|>a1<|assistant|>"),
            loads=loads,
        )
        context = RolloutContext(
            workflow=self.workflow or build_workflow(self.spec.workflow),
            engine=engine,
            scorer=Scorer(service, timeout_seconds=60.0),
            template=template,
            limits=EpisodeLimits(
                max_new_tokens=rollout.max_new_tokens,
                max_trajectory_tokens=self.spec.workflow.max_trajectory_tokens,
                model=limits,
            ),
            executor=self.executor,
            sampling_seed=self.spec.seed if rollout.repeatable_sampling else None,
        )
        return Parts(options, context, loader, loads, controller, client)

    async def until(self, condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Wait for the run's state; fails at once when a worker failed."""

        def holds() -> bool:
            for running in [*self.workers, *self.visitors]:
                if running.task.done():
                    running.task.result()
            return condition()

        await eventually(holds, lambda: f"{self.controller.state.status()}", seconds=seconds)

    def lines(self, job: str) -> list[AnyLine]:
        return written_lines(self.directory / "jobs" / job)

    def _job(self, name: str, kind: JobKind, controller_port: int, reward_port: int) -> Job:
        directory = self.directory / "jobs" / name
        directory.mkdir(parents=True)
        attempt = AttemptFile(
            run_id=self.run_id, attempt_id="att_1", attempt_number=1, epoch=1, spec=self.spec.model_dump(mode="json"),
            directory=str(self.directory), model_directory=str(self.model_directory),
            dataset_file=str(self.dataset_file),
            resume_directory=str(self.resume_directory) if self.resume_directory else None,
            evaluation_file=str(self.evaluation_file) if self.evaluation_file else None,
            controller_url=f"http://127.0.0.1:{controller_port}", reward_url=f"http://127.0.0.1:{reward_port}",
            token=TOKEN,
        )  # fmt: skip
        (self.directory / "attempt.json").write_bytes(msgspec.json.encode(attempt))
        job = JobFile(job_id=name, name=name, kind=kind)
        return Job(attempt=attempt, job=job, directory=directory, began_at=time.time())


class TestTrainer:
    """Takes batches and announces versions, as the trainer does, but trains nothing."""

    __test__ = False

    def __init__(self, controller: RpcClient, spec: RunSpec) -> None:
        self._controller = controller
        self._groups = spec.trainer.groups_per_step

    async def announce(self, weights: wire.PublishedWeights, outcome: str = "trained") -> None:
        request = wire.PublishVersionRequest(version=weights.version, weights=weights, outcome=outcome)  # type: ignore[arg-type]
        await self._controller.call("publish_version", request, wire.Ack)

    async def take(self, version: int, *, seconds: float = 60.0) -> list[wire.Group]:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            request = wire.TakeRequest(version=version, groups=self._groups, wait_seconds=2.0)
            reply = await self._controller.call("take", request, wire.TakeReply)
            if reply.groups:
                return reply.groups
        raise AssertionError(f"there was no batch at version {version}")

    async def end(self, reason: str = "completed") -> None:
        await self._controller.call("end", wire.EndRequest(reason=reason), wire.Ack)  # type: ignore[arg-type]

    async def probes(self) -> list[wire.AckedProbe]:
        return (await self._controller.call("probes", wire.ProbesRequest(), wire.ProbesReply)).probes
