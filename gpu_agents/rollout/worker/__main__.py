"""`python -m gpu_agents.rollout.worker --attempt attempt.json --job DIRECTORY`"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from gpu_agents.job import Job, finish_job, read_arguments, stop_event
from gpu_agents.rollout.chat_template import ChatTemplate, InvalidModelFiles
from gpu_agents.rollout.dataset_rows import InvalidDataset, read_rows
from gpu_agents.rollout.engines.client import ModelLimits
from gpu_agents.rollout.engines.errors import EngineConfigRejected
from gpu_agents.rollout.engines.launch import LaunchPlan
from gpu_agents.rollout.sessions.manager import SessionManager
from gpu_agents.rollout.sessions.server import SessionServer, SessionServerConfig
from gpu_agents.rollout.sessions.session_group import SessionConfig
from gpu_agents.rollout.worker.code_execution import SandboxedPython, SandboxUnavailable
from gpu_agents.rollout.worker.concurrency import WindowLimits
from gpu_agents.rollout.worker.config import WorkerConfig, read_test_overrides
from gpu_agents.rollout.worker.engine_counters import EngineCounters
from gpu_agents.rollout.worker.engine_handle import EngineHandle
from gpu_agents.rollout.worker.engine_supervisor import EngineCrashLoop, EngineSupervisor
from gpu_agents.rollout.worker.episode import EpisodeLimits, RolloutContext
from gpu_agents.rollout.worker.evaluator import Evaluator, EvaluatorTelemetry
from gpu_agents.rollout.worker.manifest import ExpectedTensors, InvalidWeights
from gpu_agents.rollout.worker.scoring import Scorer
from gpu_agents.rollout.worker.telemetry import WorkerTelemetry
from gpu_agents.rollout.worker.weight_fetcher import WeightFetcher
from gpu_agents.rollout.worker.weight_loader import PROBE_TOKENS, Load, WeightLoader
from gpu_agents.rollout.worker.worker import Ending, Sessions, Worker
from gpu_agents.rollout.workflows.registry import build_workflow
from gpu_agents.rollout.workflows.sandbox_launcher import require_sandbox, sandbox_launcher
from gpu_agents.rollout.workflows.user_workflow import UserWorkflow
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.attempt import AttemptFile
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.rollout import AttemptClockReply, AttemptClockRequest
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.telemetry import Outbox
from oolong.contracts.user_code import SourceKind
from oolong.gpu_slots import visible_devices
from oolong.sandbox import SandboxUnsupported
from oolong.system.rpc import RpcClient, RpcUnavailable

SHARED_ENGINE_STATIC = 0.8  # fraction of its GPU share for weights and KV cache


def main() -> int:
    job = read_arguments("gpu_agents.rollout.worker")
    try:
        return asyncio.run(work(job))
    except (InvalidModelFiles, InvalidWeights) as error:
        return finish_job(job, EndReason.MODEL_INVALID, str(error))
    except (EngineConfigRejected, SandboxUnsupported, SandboxUnavailable) as error:
        return finish_job(job, EndReason.CONFIG_REJECTED, str(error))
    except InvalidDataset as error:
        return finish_job(job, EndReason.DATASET_INVALID, str(error))
    except EngineCrashLoop as error:
        return finish_job(job, EndReason.ROLLOUT_CRASH_LOOP, str(error))
    except RpcUnavailable as error:
        return finish_job(job, EndReason.CONTROLLER_CRASHED, str(error))


async def work(job: Job) -> int:
    attempt, spec = job.attempt, job.attempt.run_spec
    options = _options(job, spec)
    workflow = _workflow(job, spec)
    template = ChatTemplate(attempt.model_directory)
    counters = EngineCounters(clock=time.monotonic)
    engine = EngineHandle(counters, loads_between_requests=options.loads_between_requests)
    controller = RpcClient(
        "the controller", attempt.controller_url, attempt.token, certificate=attempt.certificate
    )
    reward = RpcClient(
        "the reward service", attempt.reward_url, attempt.token, certificate=attempt.certificate
    )
    fetcher = _weight_fetcher(attempt)
    if fetcher is not None:
        job = replace(job, began_at=await _began_at(controller))
    loads: list[Load] = []
    limits = limits_of(attempt.model_directory)
    executor = SandboxedPython(reward, seconds=spec.workflow.tool_seconds)
    if workflow.executes:
        await executor.require()
    context = RolloutContext(
        workflow=workflow,
        engine=engine,
        scorer=Scorer(reward, timeout_seconds=options.reward_timeout_seconds),
        template=template,
        limits=EpisodeLimits(
            max_new_tokens=spec.rollout.max_new_tokens,
            max_trajectory_tokens=spec.workflow.max_trajectory_tokens,
            model=limits,
        ),
        executor=executor,
        sampling_seed=spec.seed if spec.rollout.repeatable_sampling else None,
    )
    loader = WeightLoader(
        options=options,
        engine=engine,
        controller=controller,
        expected=expected_tensors(attempt.model_directory, spec),
        probe_prompt=_probe_prompt(job, spec, template, limits),
        loads=loads,
        fetcher=fetcher,
    )
    parts = Parts(
        job=job, options=options, context=context, loader=loader, controller=controller, limits=limits
    )
    try:
        ending = await (_evaluate(parts) if job.job.evaluates else _generate(parts, loads))
    finally:
        if context.workflow.close is not None:
            await context.workflow.close()
        if fetcher is not None:
            await fetcher.close()
        await controller.close()
        await reward.close()
    return finish_job(job, EndReason.COMPLETED if ending == "ended" else EndReason.STOPPED_BY_USER)


def _weight_fetcher(attempt: AttemptFile) -> WeightFetcher | None:
    """None on the trainer's node, which has the weights."""
    if not attempt.weights_url:
        return None
    return WeightFetcher(
        url=attempt.weights_url,
        token=attempt.token,
        certificate=attempt.certificate,
        directory=attempt.weights_directory,
    )


async def _began_at(controller: RpcClient) -> float:
    """When the attempt began: its files on this node are as old as its first engine here."""
    reply = await controller.call("attempt_clock", AttemptClockRequest(), AttemptClockReply)
    return reply.began_at


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a training worker and an evaluator both need."""

    job: Job
    options: WorkerConfig
    context: RolloutContext
    loader: WeightLoader
    controller: RpcClient
    limits: ModelLimits

    @property
    def outbox(self) -> Outbox:
        return Outbox(self.job.directory, self.job.job.incarnation)


async def _generate(parts: Parts, loads: list[Load]) -> Ending:
    """Serve the run: claim groups and follow every published version."""
    job, spec, engine = parts.job, parts.job.attempt.run_spec, parts.context.engine
    sessions = session_support(job, spec) if spec.serves_sessions else None
    extra_metrics = sessions.manager.metrics if sessions else dict
    telemetry = WorkerTelemetry(job, parts.outbox, engine.counters, extra_metrics=extra_metrics)
    worker = Worker(
        options=parts.options,
        context=parts.context,
        supervisor=EngineSupervisor(
            launch_plan(job, spec), parts.limits, engine=engine, loader=parts.loader, telemetry=telemetry
        ),
        loader=parts.loader,
        loads=loads,
        controller=parts.controller,
        telemetry=telemetry,
        stop=stop_event(),
        sessions=sessions,
    )
    server = session_server(job, spec, sessions) if sessions else None
    try:
        if server is not None:
            await server.start(job.job.session_port or job.attempt.session_ports[job.job.index])
        return await worker.run()
    finally:
        if server is not None:
            await server.close()
        telemetry.close()


async def _evaluate(parts: Parts) -> Ending:
    """Score one evaluation on a borrowed engine, without claiming groups."""
    job, engine = parts.job, parts.context.engine
    telemetry = EvaluatorTelemetry(job, parts.outbox, engine.counters)
    evaluator = Evaluator(
        worker_id=parts.options.worker_id,
        task_id=job.job.evaluates,
        context=parts.context,
        loader=parts.loader,
        controller=parts.controller,
        telemetry=telemetry,
        stop=stop_event(),
    )
    plan = launch_plan(job, job.attempt.run_spec)
    try:
        return await evaluator.run(
            EngineSupervisor(plan, parts.limits, engine=engine, loader=evaluator, telemetry=telemetry)
        )
    finally:
        telemetry.close()


def session_support(job: Job, spec: RunSpec) -> Sessions:
    rows = {row.row: row for row in read_rows(job.attempt.dataset_file, split=spec.dataset.split)}
    return Sessions(
        SessionManager(index=job.job.index, rows=rows),
        SessionConfig(
            export=spec.workflow.session_export,
            timeout_seconds=spec.workflow.session_timeout_seconds,
            reward_scale=spec.reward.scale,
            reward_bias=spec.reward.bias,
        ),
    )


def session_server(job: Job, spec: RunSpec, sessions: Sessions) -> SessionServer:
    return SessionServer(
        sessions.manager,
        SessionServerConfig(
            run_id=job.attempt.run_id,
            token=job.attempt.token,
            temperature=spec.rollout.temperature,
            max_new_tokens=spec.rollout.max_new_tokens,
            timeout_seconds=spec.workflow.session_timeout_seconds,
        ),
    )


def _workflow(job: Job, spec: RunSpec) -> Workflow:
    """Return the built-in workflow, or the uploaded one in the sandbox. Raises SandboxUnsupported without a sandbox."""
    if spec.workflow.function is None:
        return build_workflow(spec.workflow)
    source = Path(job.attempt.source_files[SourceKind.WORKFLOW]).read_text()
    sandbox = require_sandbox(worker=job.job.index, slots=spec.rollout.max_concurrent_groups)
    return UserWorkflow(
        source, spec.workflow.options, sandbox_launcher(sandbox), host_capacity=spec.rollout.group_size
    ).workflow


def _options(job: Job, spec: RunSpec) -> WorkerConfig:
    pause_mode, skip_loads = read_test_overrides(os.environ, interruption=spec.rollout.interruption)
    return WorkerConfig(
        worker_id=f"{job.job.name}/{job.job.incarnation}",
        group_size=spec.rollout.group_size,
        temperature=spec.rollout.temperature,
        window=WindowLimits(
            group_size=spec.rollout.group_size,
            max_rollouts=spec.rollout.engine_max_running_requests,
            kv_tokens=spec.rollout.engine_max_total_tokens,
            longest_tokens=spec.rollout.max_prompt_tokens + spec.rollout.max_new_tokens,
        ),
        interruptible=spec.rollout.interruptible,
        reward_scale=spec.reward.scale,
        reward_bias=spec.reward.bias,
        reward_timeout_seconds=spec.reward.timeout_seconds,
        pause_mode=pause_mode,
        adapters=spec.model.lora is not None,
        skip_loads=skip_loads,
    )


def expected_tensors(model_directory: str | Path, spec: RunSpec) -> ExpectedTensors:
    """The tensors of each version: of the whole model, or of an adapter for it."""
    if spec.model.lora is None:
        return ExpectedTensors.of_model(model_directory)
    return ExpectedTensors.of_adapter(model_directory, spec.model.lora)


def launch_plan(job: Job, spec: RunSpec) -> LaunchPlan:
    """Raises EngineConfigRejected where the node's device cannot compute in the spec's dtype."""
    attempt = job.attempt
    if attempt.device == "cuda" and spec.trainer.dtype == "float32":
        raise EngineConfigRejected(
            "trainer.dtype: float32 has no exact attention kernel on a GPU (Triton's may round to TF32), so the "
            "engine's log-probabilities would differ from the trainer's; use bfloat16"
        )
    if attempt.device != "cuda" and spec.rollout.repeatable_sampling:
        raise EngineConfigRejected(
            "rollout.repeatable_sampling: true needs a GPU: SGLang's deterministic inference, without which it ignores "
            "the seed of a request, has no attention for a CPU; leave the field out, or run on GPUs"
        )
    return LaunchPlan(
        node_python=attempt.node_python,
        model_directory=attempt.model_directory,
        port=job.job.engine_port or attempt.engine_ports[job.job.index],
        api_key=secrets.token_hex(24),  # no leading "-", which SGLang would parse as an option
        device=attempt.device,
        dtype=spec.trainer.compute_type if attempt.device == "cuda" else "float32",
        max_running_requests=spec.rollout.engine_max_running_requests,
        max_total_tokens=spec.rollout.engine_max_total_tokens,
        # Engines of one run, and a restarted worker, must not sample the same noise again.
        seed=(spec.seed * 1009 + job.job.index * 101 + job.job.incarnation) % 2**31,
        directory=job.directory.resolve(),
        visible_devices=visible_devices(job.job.slots),
        memory_fraction=engine_memory_fraction(
            spec.rollout.engine_memory_fraction, gpu_share=attempt.gpu_share
        ),
        deterministic=spec.rollout.repeatable_sampling,
        lora=spec.model.lora,
    )


def engine_memory_fraction(requested: float | None, *, gpu_share: float) -> float | None:
    """Fraction of the GPU memory that is free at boot; None lets the engine choose, which takes the whole GPU.

    On a shared GPU: the GPU share of the job, minus room for CUDA graphs and activations.
    """
    if requested is not None or gpu_share >= 1:
        return requested
    return round(gpu_share * SHARED_ENGINE_STATIC, 3)


def limits_of(model_directory: str) -> ModelLimits:
    config = json.loads((Path(model_directory) / "config.json").read_text())
    config = config.get("text_config", config)
    return ModelLimits(
        vocabulary=int(config["vocab_size"]), context_tokens=int(config["max_position_embeddings"])
    )


def _probe_prompt(job: Job, spec: RunSpec, template: ChatTemplate, limits: ModelLimits) -> list[int]:
    """The first row's prompt, truncated to the context: the same on every engine of the run."""
    row = read_rows(job.attempt.dataset_file, split=spec.dataset.split)[0]
    token_ids = template.encode(template.render(row.messages))
    return token_ids[: min(256, limits.context_tokens - PROBE_TOKENS)]


if __name__ == "__main__":
    sys.exit(main())
