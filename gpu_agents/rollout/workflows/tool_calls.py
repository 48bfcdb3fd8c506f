"""Parse the Python programs in a turn of the policy, in one of two formats. Pure functions over text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from gpu_agents.model_text import fenced_programs, tagged
from oolong.contracts.run_spec import WorkflowSection
from oolong.untrusted import parse_json

ToolFormat = Literal["tool_call", "fenced"]

# In the format of chat templates (`tools`), which describe the tool to the policy.
PYTHON_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "python",
        "description": "Runs a Python program and returns what it prints and the value of its last line. Nothing is "
        "kept between two calls.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "the program"}},
            "required": ["code"],
        },
    },
}


@dataclass(frozen=True)
class ToolCall:
    """`code`, or the error of an invalid call, which is returned to the policy and does not fail the workflow."""

    code: str = ""
    error: str = ""


def tools_of(section: WorkflowSection) -> list[dict[str, Any]]:
    """Tools for the chat template: none, unless the policy calls tools in the template's own format."""
    calls = section.function is None and section.name == "python_tool" and section.tool_format == "tool_call"
    return [PYTHON_TOOL] if calls else []


def tool_calls(text: str, form: ToolFormat, *, limit: int | None = None) -> list[ToolCall]:
    """Return the calls in the order in which the turn makes them, at most `limit`."""
    return list(islice(_calls(text, form), limit))


def _calls(text: str, form: ToolFormat) -> Iterator[ToolCall]:
    if form == "tool_call":
        yield from map(_parse, tagged(text, "tool_call"))
        return
    for program in fenced_programs(text):
        yield ToolCall(code=program)


def _parse(body: str) -> ToolCall:
    """Parse {"name": "python", "arguments": {"code": "..."}}, as Qwen's templates teach it."""
    try:
        call = parse_json(body)
    except ValueError as error:
        return ToolCall(error=f"the tool call is not JSON: {error}")
    if not isinstance(call, dict) or call.get("name") != "python":
        return ToolCall(error="there is one tool, python; the call must be an object with this name")
    arguments = call.get("arguments")
    code = arguments.get("code") if isinstance(arguments, dict) else None
    if not isinstance(code, str):
        return ToolCall(error="the tool python takes arguments of the form {'code': '...'}")
    return ToolCall(code=code)
