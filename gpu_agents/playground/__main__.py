"""`python -m gpu_agents.playground --attempt attempt.json --job DIRECTORY`"""

from __future__ import annotations

import asyncio
import logging
import sys

from gpu_agents.job import Job, finish_job, read_arguments, stop_event
from gpu_agents.playground.server import Engine, PlaygroundServer
from gpu_agents.rollout.chat_template import ChatTemplate, InvalidModelFiles
from gpu_agents.rollout.engines.client import EngineClient
from gpu_agents.rollout.engines.errors import EngineConfigRejected
from gpu_agents.rollout.engines.launch import EngineProcess
from gpu_agents.rollout.worker.__main__ import launch_plan, limits_of
from oolong.contracts.attempt import mark_ready
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import Note, Outbox, Progress
from oolong.system.rpc import RpcClient

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0


def main() -> int:
    job = read_arguments("gpu_agents.playground")
    try:
        return asyncio.run(serve(job))
    except InvalidModelFiles as error:
        return finish_job(job, EndReason.MODEL_INVALID, str(error))
    except EngineConfigRejected as error:
        return finish_job(job, EndReason.CONFIG_REJECTED, str(error))


async def serve(job: Job) -> int:
    """Serve until the playground is idle for too long or stopped. If the engine crashes, the job exits; the agent
    restarts it a few times."""
    attempt, spec = job.attempt, job.attempt.run_spec
    section = spec.playground
    assert section is not None
    plan = launch_plan(job, spec)
    reward = RpcClient("the reward service", attempt.reward_url, attempt.token) if section.scores else None
    server = PlaygroundServer(
        Engine(plan.port, plan.api_key),
        ChatTemplate(attempt.model_directory),
        run_id=attempt.run_id,
        token=attempt.token,
        idle_seconds=section.idle_seconds,
        reward=reward,
    )
    outbox = Outbox(job.directory, job.job.incarnation)
    await server.start(attempt.playground_port)
    client = EngineClient(plan.port, plan.api_key, limits_of(attempt.model_directory))
    process = await EngineProcess.start(plan)
    try:
        outbox.write(Progress(phase="boot", done=0, total=1))
        stopping = asyncio.create_task(stop_event().wait())
        booting = asyncio.create_task(process.wait_until_serving(client))
        await asyncio.wait({stopping, booting}, return_when=asyncio.FIRST_COMPLETED)
        if booting.done():
            booting.result()
            server.set_engine_ready()
            mark_ready(job.directory)
            outbox.write(Progress(phase="chat", done=1, total=1))
        died = asyncio.create_task(process.wait())
        idle = asyncio.create_task(_wait_until_idle(server))
        tasks = {stopping, died, idle}
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in (*tasks, booting):
            task.cancel()
        if died.done() and not stopping.done():
            log.error("the engine ended with status %s%s", died.result(), process.last_lines)
            return 1
        if stopping.done():
            return finish_job(job, EndReason.STOPPED_BY_USER)
        outbox.write(
            Note(kind="released", message=f"no request for {section.idle_seconds} s; the slot is released")
        )
        return finish_job(job, EndReason.COMPLETED)
    finally:
        await server.close()
        await process.stop()
        await client.close()
        if reward is not None:
            await reward.close()
        outbox.close()


async def _wait_until_idle(server: PlaygroundServer) -> None:
    while (left := server.idle_left_seconds) > 0:
        await asyncio.sleep(min(left, CHECK_SECONDS))


if __name__ == "__main__":
    sys.exit(main())
