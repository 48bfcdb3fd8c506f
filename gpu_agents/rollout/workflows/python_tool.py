"""Answer with the help of Python: a turn's programs are run in the sandbox, and their output is the next message."""

from __future__ import annotations

from gpu_agents.model_text import beside_the_loop
from gpu_agents.rollout.workflows.tool_calls import ToolCall, tool_calls
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection
from oolong.workflow import Episode, OutOfRoom


def build(section: WorkflowSection) -> Workflow:
    role = "tool" if section.tool_format == "tool_call" else "user"

    async def calls_of(text: str, *, most: int) -> list[ToolCall]:
        return await beside_the_loop(text, lambda: tool_calls(text, section.tool_format, most=most))

    async def python_tool(episode: Episode) -> float:
        """Worth the score of the turn that asks for nothing to be run.

        A turn that was cut off, one that asks for more than is left of max_tool_calls, and one whose outputs find no
        room are scored as they are.
        """
        left = section.max_tool_calls
        while True:
            turn = await episode.sample()
            calls = await calls_of(turn.text, most=left + 1)
            if not calls or len(calls) > left or turn.finish_reason == "length":
                break
            left -= len(calls)
            outputs = []
            for call in calls:
                if call.fault:
                    outputs.append(f"Error: {call.fault}")
                else:
                    outputs.append(
                        await episode.execute(call.code, max_output_tokens=section.tool_output_tokens)
                    )
            try:
                await episode.append_messages([{"role": role, "content": output} for output in outputs])
            except OutOfRoom:
                break
        return await episode.score()

    return Workflow(run=python_tool, executes=True)
