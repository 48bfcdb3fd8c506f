"""`python -m gpu_agents.rewards --attempt attempt.json --job DIRECTORY`"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time
from pathlib import Path

from gpu_agents.job import Job, address_of, finish_job, listen_for_peers, read_arguments, stop_event
from gpu_agents.rewards.budget import ErrorBudget
from gpu_agents.rewards.registry import ScorerContext, build_scorer, build_user_scorer
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.remote.endpoint import RemoteContext
from gpu_agents.rewards.reward import InvalidOptions, Scorer
from gpu_agents.rewards.sandboxes import Sandboxes
from gpu_agents.rewards.service import RewardService
from gpu_agents.rewards.telemetry import RewardTelemetry
from gpu_agents.rewards.train_eval_scorer import TrainEvalScorer
from oolong.contracts.attempt import mark_ready
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RewardSection
from oolong.contracts.run_spec.remote_rewards import secret_variable
from oolong.contracts.telemetry import Outbox
from oolong.contracts.user_code import EVALUATION_REWARD, SourceKind
from oolong.sandbox import SandboxUnsupported

log = logging.getLogger(__name__)

REPORT_SECONDS = 10.0


def main() -> int:
    job = read_arguments("gpu_agents.rewards")
    sandboxes, remote = Sandboxes(), RemoteCounts()
    try:
        scorer = scorer_of(job, sandboxes, remote)
    except InvalidOptions as error:
        return finish_job(job, EndReason.CONFIG_REJECTED, f"reward: {error.code}: {error}")
    return asyncio.run(serve(job, scorer, sandboxes, remote))


def scorer_of(job: Job, sandboxes: Sandboxes, remote: RemoteCounts) -> Scorer:
    """Build the training scorer, and a separate evaluation scorer if the spec has one."""
    spec = job.attempt.run_spec
    training = scorer_of_section(spec.reward, job, sandboxes, remote)
    evaluation = spec.evaluation.reward if spec.evaluation is not None else None
    if evaluation is None:
        return training
    return TrainEvalScorer(
        training=training,
        evaluation=scorer_of_section(evaluation, job, sandboxes, remote, source=EVALUATION_REWARD),
    )


def scorer_of_section(
    section: RewardSection,
    job: Job,
    sandboxes: Sandboxes,
    remote: RemoteCounts,
    *,
    source: str = SourceKind.REWARD,
) -> Scorer:
    """Build the scorer of the section's uploaded or built-in function."""
    context = ScorerContext(
        sandboxes=sandboxes,
        timeout_seconds=section.timeout_seconds,
        remote=RemoteContext(
            origins=frozenset(job.attempt.reward_origins),
            secrets=lambda name: os.environ.get(secret_variable(name)),
            counts=remote,
            use_cache=job.attempt.run_spec.kind != "reward_test",
        ),
    )
    if section.function is not None:
        text = Path(job.attempt.source_files[source]).read_text()
        return build_user_scorer(text, section.options, context)
    return build_scorer(section.name, section.options, context)


def max_error_rate(job: Job) -> float:
    """Reward tests report all errors; runs end at too many."""
    spec = job.attempt.run_spec
    return 1.0 if spec.kind == "reward_test" else spec.reward.max_error_rate


async def serve(job: Job, scorer: Scorer, sandboxes: Sandboxes, remote: RemoteCounts) -> int:
    section = job.attempt.run_spec.reward
    outbox = Outbox(job.directory, job.job.incarnation)
    sandboxes.start()
    try:
        await scorer.start()
    except SandboxUnsupported as refused:
        await sandboxes.close()
        return finish_job(
            job, EndReason.CONFIG_REJECTED, f"reward {section.function or section.name}: {refused}"
        )
    service = RewardService(
        scorer,
        token=job.attempt.token,
        sandboxes=sandboxes,
        budget=ErrorBudget(max_error_rate(job)),
        remote=remote,
    )
    telemetry = RewardTelemetry(job, outbox, service, sandboxes)
    host, port = address_of(job.attempt.reward_url)
    await service.rpc.start(host, port)
    if job.attempt.listener is not None:
        await listen_for_peers(service.rpc, job.attempt.listener, port=port)
    mark_ready(job.directory)
    log.info("reward %s listens on %s", section.function or section.name, job.attempt.reward_url)
    reports = asyncio.create_task(report(telemetry))
    stopped = asyncio.create_task(stop_event().wait())
    over_budget = asyncio.create_task(service.over_budget.wait())
    await asyncio.wait({stopped, over_budget}, return_when=asyncio.FIRST_COMPLETED)
    for task in (reports, stopped, over_budget):
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await service.rpc.close()
    await scorer.close()
    await sandboxes.close()
    service.log_parts()
    telemetry.publish(now=time.time(), closing=True)
    telemetry.close()
    if service.budget.exceeded:
        return finish_job(job, EndReason.REWARD_ERROR_RATE, service.budget.exceeded)
    return finish_job(job, EndReason.STOPPED_BY_USER)


async def report(telemetry: RewardTelemetry) -> None:
    await telemetry.publish_capabilities()
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        telemetry.publish(now=time.time())


if __name__ == "__main__":
    sys.exit(main())
