"""Retry after a wrong answer, with a discount per retry (as in the math example of arXiv 2505.24298's system)."""

from __future__ import annotations

from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection
from oolong.workflow import Episode, OutOfRoom


def build(section: WorkflowSection) -> Workflow:
    feedback = [{"role": "user", "content": section.feedback}]

    async def multi_turn(episode: Episode) -> float:
        """Return turn_discount ** (turns - 1) times the last turn's score.

        The discount applies to the score, before reward.scale and reward.bias: the value of a wrong answer does not
        depend on the number of turns. A truncated turn is the last one.
        """
        turns = 1
        while True:
            turn = await episode.sample()
            score = await episode.score()
            if score >= section.retry_below or turns == section.max_turns or turn.finish_reason == "length":
                break
            try:
                await episode.append_messages(feedback)
            except OutOfRoom:
                break
            turns += 1
        return section.turn_discount ** (turns - 1) * score

    return Workflow(run=multi_turn)
