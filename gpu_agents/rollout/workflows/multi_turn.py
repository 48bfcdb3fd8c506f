"""Answer, and answer again after a wrong answer, each further turn worth less (the math example of arXiv 2505.24298's
system: the score is multiplied by the turn discount once per retry)."""

from __future__ import annotations

from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection
from oolong.workflow import Episode, OutOfRoom


def build(section: WorkflowSection) -> Workflow:
    feedback = [{"role": "user", "content": section.feedback}]

    async def multi_turn(episode: Episode) -> float:
        """Worth turn_discount ** (turns - 1) times the last turn's score.

        The discount applies to the score, before reward.scale and reward.bias: a wrong answer is worth the same after
        one turn and after many. A turn that was cut off is the last one.
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
