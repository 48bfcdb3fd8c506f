"""`python -m gpu_agents.rollout.controller --attempt attempt.json --job DIRECTORY`"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from gpu_agents.job import Job, address_of, finish_job, listen_for_peers, read_arguments, stop_event
from gpu_agents.rollout.chat_template import ChatTemplate, InvalidModelFiles
from gpu_agents.rollout.controller import snapshot as snapshots
from gpu_agents.rollout.controller.config import ControllerConfig
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.evaluations import EvaluationPlan
from gpu_agents.rollout.controller.filtering import FilterConfig
from gpu_agents.rollout.controller.gate import GateConfig
from gpu_agents.rollout.controller.initial_weights import publish_initial_weights
from gpu_agents.rollout.controller.prompt_store import InvalidPrompts, PromptStore
from gpu_agents.rollout.controller.server import ControllerServer
from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.controller.telemetry import ControllerTelemetry
from gpu_agents.rollout.controller.weight_server import WeightServer
from gpu_agents.rollout.dataset_rows import InvalidDataset, read_rows
from gpu_agents.rollout.worker.manifest import InvalidWeights
from gpu_agents.rollout.workflows.tool_calls import tools_of
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RunSpec
from oolong.contracts.runtime_overrides import LiveFile
from oolong.contracts.telemetry import Outbox
from oolong.system.rpc import RpcServer

log = logging.getLogger(__name__)

TRAINER_STOP_SECONDS = 12.0
END_ACK_SECONDS = 20.0
EVALUATOR_SECONDS = 30.0  # a slot is leased within seconds, and its job calls as soon as it has started


def main() -> int:
    job = read_arguments("gpu_agents.rollout.controller")
    try:
        controller, template = build(job)
    except InvalidDataset as error:
        return finish_job(job, EndReason.DATASET_INVALID, str(error))
    except InvalidPrompts as error:
        return finish_job(job, EndReason.CONFIG_REJECTED, str(error))
    except (InvalidModelFiles, InvalidWeights) as error:
        return finish_job(job, EndReason.MODEL_INVALID, str(error))
    except snapshots.InvalidSnapshot as error:
        return finish_job(job, EndReason.NO_VALID_CHECKPOINT, str(error))
    return asyncio.run(serve(job, controller, template))


def build(job: Job) -> tuple[Controller, ChatTemplate]:
    """Build the controller of an attempt from its files: rows, chat template, and the snapshot when it resumes."""
    attempt = job.attempt
    spec = attempt.run_spec
    template = ChatTemplate(attempt.model_directory)
    rows = read_rows(attempt.dataset_file, split=spec.dataset.split)
    prompts = PromptStore(rows, template, tools=tools_of(spec.workflow))
    if spec.kind != "eval":  # an eval run checks them against the evaluation's own limits
        prompts.check(spec.rollout, attempt.model_directory)
    restored = None
    if attempt.resume_directory:
        file = Path(attempt.resume_directory) / "controller.msgpack"
        if not file.is_file():
            raise snapshots.InvalidSnapshot(f"{file} is missing: this checkpoint cannot resume an rl run")
        restored = snapshots.decode(file.read_bytes())
    state = ControllerState(
        config=controller_config(spec),
        prompts=prompts.by_source(spec.dataset.weights),
        prompt_of=prompts.get,
        evaluation=_evaluation_plan(job, spec, template),
        restored=restored,
        tokens_generated_before=attempt.tokens_generated_before,
    )
    controller = Controller(state)
    if spec.kind == "eval":
        controller.evaluate_only(publish_initial_weights(attempt.model_directory, attempt.weights_directory))
    log.info(
        "%d prompts of split %r; resumes at version %s",
        len(prompts.rows),
        spec.dataset.split,
        restored and restored.version,
    )
    return controller, template


def controller_config(spec: RunSpec) -> ControllerConfig:
    return ControllerConfig(
        gate=GateConfig(
            groups_per_step=spec.trainer.groups_per_step,
            max_staleness=spec.staleness.max,
            max_concurrent_groups=spec.rollout.max_concurrent_groups,
            total_train_steps=spec.trainer.total_train_steps,
        ),
        straggler_policy=spec.staleness.straggler_policy,
        group_size=spec.rollout.group_size,
        seed=spec.seed,
        filter=FilterConfig(
            kind=spec.rollout.filter.kind,
            low=spec.rollout.filter.low,
            high=spec.rollout.filter.high,
            success_score=spec.rollout.filter.success_score,
            max_consecutive=spec.rollout.filter.max_consecutive,
        ),
        group_timeout_seconds=spec.rollout.group_timeout_seconds,
        branching=spec.serves_sessions,
    )


def _evaluation_plan(job: Job, spec: RunSpec, template: ChatTemplate) -> EvaluationPlan | None:
    evaluation = spec.scoring if spec.kind == "eval" else spec.evaluation
    if evaluation is None:
        return None
    file = job.attempt.evaluation_file or job.attempt.dataset_file
    rows = read_rows(file, split=spec.dataset.split if spec.kind == "eval" else evaluation.split)
    if spec.kind == "eval":
        rows = rows[: evaluation.prompts]
    prompts = PromptStore(rows, template, tools=tools_of(spec.workflow))
    rollout = spec.rollout
    if evaluation.max_new_tokens is not None:
        rollout = rollout.model_copy(update={"max_new_tokens": evaluation.max_new_tokens})
    prompts.check(rollout, job.attempt.model_directory)
    reward = evaluation.reward or spec.reward
    uses_evaluators = job.attempt.evaluators and spec.kind == "rl"
    return EvaluationPlan(
        prompts=prompts.first(evaluation.prompts),
        samples=evaluation.samples,
        temperature=evaluation.temperature,
        at_start=evaluation.at_start and spec.kind != "eval",
        at_end=evaluation.at_end,
        greedy=evaluation.greedy,
        every_steps=evaluation.every_steps,
        max_new_tokens=evaluation.max_new_tokens,
        success_score=evaluation.success_score,
        allow_blocking=evaluation.allow_blocking,
        reward_timeout_seconds=reward.timeout_seconds,
        evaluator_seconds=_evaluator_seconds(os.environ) if uses_evaluators else 0.0,
    )


def _evaluator_seconds(environment: Mapping[str, str]) -> float:
    """How long an evaluation waits for an evaluator; only tests change it."""
    return float(environment.get("OOLONG_TEST_EVALUATOR_SECONDS", EVALUATOR_SECONDS))


async def serve(job: Job, controller: Controller, template: ChatTemplate) -> int:
    state = controller.state
    outbox = Outbox(job.directory, job.job.incarnation)
    telemetry = ControllerTelemetry(job, outbox, template, source_of=lambda row: state.prompt_of(row).source)
    live = LiveFile(job.attempt.directory)
    server = ControllerServer(
        controller, telemetry, token=job.attempt.token, began_at=job.began_at, live=live
    )
    host, port = address_of(job.attempt.controller_url)
    await server.rpc.start(host, port)
    log.info("listening on %s:%d", host, port)
    weights = await _serve_other_nodes(job, server.rpc, port=port)
    stop = stop_event()
    ticks = asyncio.create_task(server.run_ticks())
    ended = asyncio.create_task(server.wait_until_ended())
    stopping = asyncio.create_task(stop.wait())
    unrecoverable = asyncio.create_task(server.wait_until_unrecoverable())
    await asyncio.wait({ticks, ended, stopping, unrecoverable}, return_when=asyncio.FIRST_COMPLETED)
    trains = job.attempt.run_spec.kind != "eval"
    if trains and stopping.done() and not ended.done() and state.versions.newest is not None:
        # The trainer commits its checkpoint first and needs the snapshot for it. Before its first announcement there
        # is nothing to commit.
        await asyncio.wait({ended}, timeout=TRAINER_STOP_SECONDS)
    if ended.done():
        # Workers that are being stopped too may never call again.
        await server.wait_until_end_acked(seconds=1.0 if stopping.done() else END_ACK_SECONDS)
    await server.rpc.close()
    if weights is not None:
        await asyncio.to_thread(weights.close)
    server.flush_notes()
    telemetry.close(state)
    if ticks.done():
        ticks.result()  # it never returns: this raises its error
    for task in (ticks, ended, stopping, unrecoverable):
        task.cancel()
    if unrecoverable.done() and not unrecoverable.cancelled() and not ended.done():
        return finish_job(job, *unrecoverable.result())
    if not trains and not state.evaluations.scores:
        stopped = (EndReason.STOPPED_BY_USER, "")
        return finish_job(job, *(stopped if stopping.done() else evaluation_end_reason(state)))
    if state.ending == "completed" or (state.ended and state.ending == "failed"):
        return finish_job(job, EndReason.COMPLETED)
    return finish_job(job, EndReason.STOPPED_BY_USER)


async def _serve_other_nodes(job: Job, rpc: RpcServer, *, port: int) -> WeightServer | None:
    """Listen for engines on other nodes, if the attempt may have any."""
    listener = job.attempt.listener
    if listener is None:
        return None
    await listen_for_peers(rpc, listener, port=port)
    weights = WeightServer(job.attempt.weights_directory, token=job.attempt.token)
    await asyncio.to_thread(weights.start, listener)
    log.info(
        "listening for other nodes on %s, ports %d and %d", listener.address, port, listener.weights_port
    )
    return weights


def evaluation_end_reason(state: ControllerState) -> tuple[EndReason, str]:
    """Why an eval run ends without scores."""
    failure = state.evaluations.failure
    if failure is None:
        return EndReason.CONTROLLER_CRASHED, "no rollout worker was left to evaluate"
    reasons = {
        "reward": EndReason.REWARD_ERRORS,
        "workflow": EndReason.WORKFLOW_ERRORS,
        "engine": EndReason.ROLLOUT_CRASH_LOOP,
    }
    return reasons[failure.cause], failure.message


if __name__ == "__main__":
    sys.exit(main())
