"""Answer with a Python tool: run a turn's programs in the sandbox, and append their output as the next message."""

from __future__ import annotations

from gpu_agents.model_text import run_off_loop
from gpu_agents.rollout.workflows.tool_calls import ToolCall, tool_calls
from gpu_agents.rollout.workflows.workflow import Workflow
from oolong.contracts.run_spec import WorkflowSection
from oolong.workflow import Episode, OutOfRoom


def build(section: WorkflowSection) -> Workflow:
    role = "tool" if section.tool_format == "tool_call" else "user"

    async def calls_of(text: str, *, limit: int) -> list[ToolCall]:
        return await run_off_loop(text, lambda: tool_calls(text, section.tool_format, limit=limit))

    async def python_tool(episode: Episode) -> float:
        """Return the score of the first turn without tool calls.

        A truncated turn, a turn that exceeds max_tool_calls, and a turn whose outputs do not fit are scored as they
        are.
        """
        remaining = section.max_tool_calls
        while True:
            turn = await episode.sample()
            calls = await calls_of(turn.text, limit=remaining + 1)
            if not calls or len(calls) > remaining or turn.finish_reason == "length":
                break
            remaining -= len(calls)
            outputs = []
            for call in calls:
                if call.error:
                    outputs.append(f"Error: {call.error}")
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
