"""`python -m gpu_agents.rewards --attempt attempt.json --job DIRECTORY`"""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from gpu_agents.job import Job, address_of, leave, read_arguments, stop_event
from gpu_agents.rewards.pool import ChildPool
from gpu_agents.rewards.reward import OptionsRefused, Reward
from gpu_agents.rewards.service import RewardService
from gpu_agents.rewards.table import IN_CHILD_PROCESSES, REWARDS, build_reward
from oolong.contracts.lifecycle import EndReason
from oolong.contracts.telemetry import Outbox, Summary

log = logging.getLogger(__name__)

CHILDREN = 2


def main() -> int:
    job = read_arguments("gpu_agents.rewards")
    section = job.attempt.run_spec.reward
    with_test_rewards = os.environ.get("OOLONG_TEST_REWARDS") == "1"
    try:
        reward = build_reward(section.name, section.options, with_test_rewards=with_test_rewards)
    except OptionsRefused as error:
        return leave(job, EndReason.CONFIG_REFUSED, f"reward: {error.code}: {error}")
    return asyncio.run(serve(job, reward))


async def serve(job: Job, reward: Reward) -> int:
    section = job.attempt.run_spec.reward
    outbox = Outbox(job.directory, job.job.incarnation)
    pool = None
    if section.name in IN_CHILD_PROCESSES:
        pool = ChildPool(
            REWARDS[section.name], section.options, size=CHILDREN, timeout_seconds=section.timeout_seconds
        )
        await pool.start()
    service = RewardService(pool or reward, token=job.attempt.token)
    await service.door.open(*address_of(job.attempt.reward_url))
    log.info("reward %s serves on %s", section.name, job.attempt.reward_url)
    await stop_event().wait()
    await service.door.close()
    if pool is not None:
        await pool.close()
    counts = service.counts
    outbox.write(
        Summary(
            name="reward",
            value={"scored": counts.scored, "failed": dict(counts.failed), "seconds": counts.seconds},
        )
    )
    outbox.close()
    return leave(job, EndReason.STOPPED_BY_USER)


if __name__ == "__main__":
    sys.exit(main())
