"""Sample one turn and return its score."""

from __future__ import annotations

from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection
from oolong.workflow import Episode


def build(section: WorkflowSection) -> Workflow:
    return Workflow(run=single_turn)


async def single_turn(episode: Episode) -> float:
    await episode.sample()
    return await episode.score()
