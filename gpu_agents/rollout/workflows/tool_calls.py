"""The Python that a turn of the policy asks to have run, in one of two conventions. Pure functions over text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from gpu_agents.model_text import fenced_programs, tagged
from oolong.contracts.run_spec import WorkflowSection
from oolong.untrusted import parse_json

ToolFormat = Literal["tool_call", "fenced"]

# As chat templates take it (`tools`): the policy is told of it in the words of its own template.
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
    """`code`, or what is wrong with the call: that is an answer to the policy, not an error of the workflow."""

    code: str = ""
    fault: str = ""


def tools_of(section: WorkflowSection) -> list[dict[str, Any]]:
    """What the chat template is to tell the policy of: nothing, unless it calls tools in the template's own form."""
    calls = section.function is None and section.name == "python_tool" and section.tool_format == "tool_call"
    return [PYTHON_TOOL] if calls else []


def tool_calls(text: str, form: ToolFormat, *, most: int | None = None) -> list[ToolCall]:
    """Return the calls in the order in which the turn makes them, at most `most`; none in a turn that only answers."""
    return list(islice(_calls(text, form), most))


def _calls(text: str, form: ToolFormat) -> Iterator[ToolCall]:
    if form == "tool_call":
        yield from map(_read, tagged(text, "tool_call"))
        return
    for program in fenced_programs(text):
        yield ToolCall(code=program)


def _read(body: str) -> ToolCall:
    """Read {"name": "python", "arguments": {"code": "..."}}, as Qwen's templates teach it."""
    try:
        call = parse_json(body)
    except ValueError as error:
        return ToolCall(fault=f"the tool call is not JSON: {error}")
    if not isinstance(call, dict) or call.get("name") != "python":
        return ToolCall(fault="there is one tool, python; the call must be an object with this name")
    arguments = call.get("arguments")
    code = arguments.get("code") if isinstance(arguments, dict) else None
    if not isinstance(code, str):
        return ToolCall(fault="the tool python takes arguments of the form {'code': '...'}")
    return ToolCall(code=code)
