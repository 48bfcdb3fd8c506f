"""The workflow of runs whose rollouts come from user agents (gpu_agents.rollout.sessions).

It is not migratable, because an agent's actions cannot be replayed on another worker. An evaluation has no agent: it
samples a single turn for the row's prompt.
"""

from __future__ import annotations

from gpu_agents.rollout.workflows.single_turn import single_turn
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection


def build(section: WorkflowSection) -> Workflow:
    return Workflow(run=single_turn, migratable=False)
