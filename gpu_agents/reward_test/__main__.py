"""`python -m gpu_agents.reward_test --attempt attempt.json --job DIRECTORY`: the controller job of a reward test.

Completions come from the attempt's engine, from a file, and from the adversarial probes. The reward service scores them
all, and the report is written as the summary `reward_test`.
"""

from __future__ import annotations

import asyncio
import logging
import sys

from gpu_agents.job import Job, address_of, finish_job, read_arguments, stop_event
from gpu_agents.reward_test.adversarial import adversarial_completions
from gpu_agents.reward_test.report import build_report
from gpu_agents.reward_test.scoring import check_determinism, stored_samples
from gpu_agents.reward_test.types import MODEL, Sample
from gpu_agents.rollout.chat_template import ChatTemplate, InvalidModelFiles
from gpu_agents.rollout.controller.__main__ import controller_config, evaluation_end_reason
from gpu_agents.rollout.controller.controller import Controller
from gpu_agents.rollout.controller.evaluations import EvaluationPlan
from gpu_agents.rollout.controller.initial_weights import publish_initial_weights
from gpu_agents.rollout.controller.prompt_order import one_source
from gpu_agents.rollout.controller.prompt_store import InvalidPrompts, PromptStore
from gpu_agents.rollout.controller.server import ControllerServer
from gpu_agents.rollout.controller.state import ControllerState
from gpu_agents.rollout.controller.telemetry import ControllerTelemetry
from gpu_agents.rollout.dataset_rows import InvalidDataset, read_rows
from gpu_agents.rollout.worker.manifest import InvalidWeights
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.run_spec import RewardTestSection
from oolong.contracts.runtime_overrides import LiveFile
from oolong.contracts.telemetry import Outbox, Progress, Summary
from oolong.contracts.user_code import SAMPLES
from oolong.system.rpc import RpcClient, RpcUnavailable

log = logging.getLogger(__name__)

END_ACK_SECONDS = 20.0


class SamplingFailed(Exception):
    """The engine sampled no completions. `reason` is the run's end reason."""

    def __init__(self, reason: EndReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def main() -> int:
    job = read_arguments("gpu_agents.reward_test")
    try:
        return asyncio.run(test_reward(job))
    except InvalidDataset as error:
        return finish_job(job, EndReason.DATASET_INVALID, str(error))
    except InvalidPrompts as error:
        return finish_job(job, EndReason.CONFIG_REJECTED, str(error))
    except (InvalidModelFiles, InvalidWeights) as error:
        return finish_job(job, EndReason.MODEL_INVALID, str(error))
    except RpcUnavailable as error:
        return finish_job(job, EndReason.REWARD_SERVICE_CRASH_LOOP, str(error))
    except SamplingFailed as error:
        return finish_job(job, error.reason, str(error))


async def test_reward(job: Job) -> int:
    spec = job.attempt.run_spec
    section = spec.reward_test
    assert section is not None
    template = ChatTemplate(job.attempt.model_directory)
    store = PromptStore(
        read_rows(job.attempt.dataset_file, split=spec.dataset.split)[: section.rows], template
    )
    outbox = Outbox(job.directory, job.job.incarnation)
    stopping = asyncio.create_task(stop_event().wait())
    working = asyncio.create_task(_work(job, section, store, template, outbox))
    await asyncio.wait({stopping, working}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not working.done():
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        outbox.close()
        return finish_job(job, EndReason.STOPPED_BY_USER)
    working.result()
    outbox.close()
    return finish_job(job, EndReason.COMPLETED)


async def _work(
    job: Job, section: RewardTestSection, store: PromptStore, template: ChatTemplate, outbox: Outbox
) -> None:
    reward = job.attempt.run_spec.reward
    prompts = store.first(section.rows)
    samples = adversarial_completions(section.probes, prompts)
    if SAMPLES in job.attempt.source_files:
        rows = {prompt.index: prompt for prompt in prompts}
        samples += stored_samples(
            job.attempt.source_files[SAMPLES],
            rows,
            without_specials=lambda text: template.decode(template.encode(text)),
        )
    if section.samples:
        samples += await _from_model(job, section, store, template, outbox)

    def done(count: int) -> None:
        if count % 25 == 0 or count == len(samples):
            outbox.write(Progress(phase="reward_test", done=count, total=len(samples)))

    service = RpcClient("the reward service", job.attempt.reward_url, job.attempt.token)
    try:
        scored = await check_determinism(samples, service, timeout_seconds=reward.timeout_seconds, done=done)
    finally:
        await service.close()
    document = build_report(
        scored,
        rows=len(prompts),
        success_score=section.success_score,
        timeout_seconds=reward.timeout_seconds,
        max_error_rate=section.max_error_rate,
    )
    log.info("result %s: %s", document["result"], document["reasons"])
    outbox.write(Summary(name="reward_test", value=document))


async def _from_model(
    job: Job, section: RewardTestSection, store: PromptStore, template: ChatTemplate, outbox: Outbox
) -> list[Sample]:
    """Sample completions on the attempt's engine, as an unscored evaluation."""
    prompts = store.first(section.rows)
    limits = job.attempt.run_spec.rollout.model_copy(update={"max_new_tokens": section.max_new_tokens})
    store.check(limits, job.attempt.model_directory)
    controller = Controller(
        ControllerState(
            config=controller_config(job.attempt.run_spec),
            prompts=one_source(store.rows),
            prompt_of=store.get,
            evaluation=EvaluationPlan(
                prompts=prompts,
                samples=section.samples,
                temperature=section.temperature,
                at_start=False,
                at_end=True,
                greedy=False,
                max_new_tokens=section.max_new_tokens,
                texts_only=True,
            ),
        )
    )
    controller.evaluate_only(
        publish_initial_weights(job.attempt.model_directory, job.attempt.weights_directory)
    )
    telemetry = ControllerTelemetry(job, outbox, template, source_of=lambda row: store.get(row).source)
    server = ControllerServer(
        controller,
        telemetry,
        token=job.attempt.token,
        began_at=job.began_at,
        live=LiveFile(job.attempt.directory),
    )
    await server.rpc.start(*address_of(job.attempt.controller_url))
    ticks = asyncio.create_task(server.run_ticks())
    try:
        await server.wait_until_ended()
        await server.wait_until_end_acked(seconds=END_ACK_SECONDS)
    finally:
        ticks.cancel()
        await server.rpc.close()
    if not controller.state.evaluations.scores:
        raise SamplingFailed(*evaluation_end_reason(controller.state))
    by_row = {prompt.index: prompt for prompt in prompts}
    return [
        Sample(
            row=text.row,
            source=MODEL,
            prompt=by_row[text.row].prompt,
            answer=by_row[text.row].answer,
            completion=text.text,
            finish_reason=text.finish_reason,
        )
        for text in controller.state.evaluations.texts
    ]


if __name__ == "__main__":
    sys.exit(main())
