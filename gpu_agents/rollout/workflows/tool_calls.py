"""The Python that a turn of the policy asks to have run, in one of two conventions. Pure functions over text."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from oolong.contracts.run_spec import WorkflowSection

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
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_FENCED = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class ToolCall:
    """`code`, or what is wrong with the call: that is an answer to the policy, not an error of the workflow."""

    code: str = ""
    fault: str = ""


def tools_of(section: WorkflowSection) -> list[dict[str, Any]]:
    """What the chat template is to tell the policy of: nothing, unless it calls tools in the template's own form."""
    calls = section.function is None and section.name == "python_tool" and section.tool_format == "tool_call"
    return [PYTHON_TOOL] if calls else []


def tool_calls(text: str, form: ToolFormat) -> list[ToolCall]:
    """In the order in which the turn makes them; none in a turn that only answers."""
    if form == "fenced":
        return [ToolCall(code=match) for match in _FENCED.findall(text)]
    return [_read(match) for match in _TOOL_CALL.findall(text)]


def _read(body: str) -> ToolCall:
    """{"name": "python", "arguments": {"code": "..."}}, as Qwen's templates teach it."""
    try:
        call = json.loads(body)
    except (ValueError, RecursionError) as error:
        return ToolCall(fault=f"the tool call is not JSON: {error}")
    if not isinstance(call, dict) or call.get("name") != "python":
        return ToolCall(fault="there is one tool, python; the call must be an object with this name")
    arguments = call.get("arguments")
    code = arguments.get("code") if isinstance(arguments, dict) else None
    if not isinstance(code, str):
        return ToolCall(fault="the tool python takes arguments of the form {'code': '...'}")
    return ToolCall(code=code)
