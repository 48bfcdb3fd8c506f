"""The rollouts of a run whose agents talk to it from outside (gpu_agents.rollout.sessions).

What an agent does cannot be done again elsewhere, so it is not migratable. An evaluation has no agent: it plays a
single turn of the row's own prompt.
"""

from __future__ import annotations

from gpu_agents.rollout.workflows.single_turn import single_turn
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection


def build(section: WorkflowSection) -> Workflow:
    return Workflow(run=single_turn, migratable=False)
