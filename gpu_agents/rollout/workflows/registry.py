"""The workflows by name. To add one: a file with `build(section)`, a line here, its name in the RunSpec."""

from __future__ import annotations

from collections.abc import Callable

from gpu_agents.rollout.workflows import agent_session, multi_turn, python_tool, single_turn
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection

WORKFLOWS: dict[str, Callable[[WorkflowSection], Workflow]] = {
    "single_turn": single_turn.build,
    "multi_turn": multi_turn.build,
    "python_tool": python_tool.build,
    "agent_session": agent_session.build,
}


def build_workflow(section: WorkflowSection) -> Workflow:
    return WORKFLOWS[section.name](section)
