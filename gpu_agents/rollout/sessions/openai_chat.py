"""The part of OpenAI's chat completions that a training rollout can serve (pure): parse requests, render responses.

Parameters that would change the sampled distribution, and so the log-probabilities that are trained on, are rejected
with the reason. No parameter is silently ignored.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpu_agents.model_text import TaggedObject, tagged_objects
from gpu_agents.rollout.sessions.conversation_tree import arguments_of
from oolong.untrusted import parse_json

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
# Values that change nothing. All others are rejected.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,), "top_p": (1,), "top_k": (-1,), "min_p": (0,), "frequency_penalty": (0,), "presence_penalty": (0,),
    "repetition_penalty": (1,), "logit_bias": ({},), "logprobs": (False,), "top_logprobs": (0,), "seed": (),
    "response_format": ({"type": "text"},), "tool_choice": ("auto",), "functions": (), "function_call": (),
    "audio": (), "modalities": (["text"],), "prediction": (),
}  # fmt: skip
_REASONS = {
    "n": "a session is one rollout; open another session for another rollout",
    "seed": "sampling noise is seeded per run",
    "logprobs": "log-probabilities are recorded for training and not returned",
    "response_format": "constrained decoding samples another distribution than the one that is trained",
    "tool_choice": "a forced tool call samples another distribution than the one that is trained",
}
_DISTRIBUTION = "the log-probabilities that are trained on are those of the full distribution"


MAX_TOOL_CALLS = 128  # per reply; a reply with more stays text


class InvalidChatRequest(Exception):
    """Rejected with status 400 in OpenAI's error format."""

    def __init__(self, param: str, message: str, *, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    messages: list[dict[str, Any]]  # normalized roles, contents as strings
    tools: list[dict[str, Any]]
    max_tokens: int | None
    stops: list[str]
    stream: bool
    include_usage: bool


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The policy's reply, as the agent receives it and sends it back with its next call."""

    text: str
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: Literal["stop", "length", "tool_calls"]

    @property
    def message(self) -> dict[str, Any]:
        content = self.text if self.text or not self.tool_calls else None
        message: dict[str, Any] = {"role": "assistant", "content": content}
        return {**message, "tool_calls": self.tool_calls} if self.tool_calls else message


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises InvalidChatRequest."""
    try:
        document = parse_json(body)
    except ValueError as error:
        raise InvalidChatRequest("", f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidChatRequest("", "the body is not a JSON object")
    return document


def parse_request(body: bytes, *, temperature: float) -> ChatRequest:
    """Raises InvalidChatRequest, naming the parameter."""
    document = parse_object(body)
    _check_sampling(document, temperature)
    raw = document.get("messages")
    if not isinstance(raw, list) or not raw:
        raise InvalidChatRequest("messages", "messages must be a list with at least one message")
    messages = [_message(message, index) for index, message in enumerate(raw)]
    if messages[-1]["role"] == "assistant":
        last = f"messages.{len(messages) - 1}"
        raise InvalidChatRequest(last, "the last message is from the assistant: there is nothing to answer")
    options = document.get("stream_options") or {}
    return ChatRequest(
        messages=messages,
        tools=_tools(document.get("tools")),
        max_tokens=_max_tokens(document),
        stops=_stops(document.get("stop")),
        stream=bool(document.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
    )


def for_template(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Convert messages for chat templates: arguments of tool calls become values."""
    prepared = []
    for message in messages:
        calls = [
            {**call, "function": {**call.get("function", {}), "arguments": arguments_of(call)}}
            for call in message.get("tool_calls") or []
        ]
        prepared.append({**message, "tool_calls": calls} if calls else dict(message))
    return prepared


def parse_reply(
    text: str, finish_reason: Literal["stop", "length"], *, has_tools: bool, stops: Sequence[str]
) -> Reply:
    """Parse the text up to a stop string. Tool calls have the format of Qwen's and Hermes' templates."""
    cut = min((at for stop in stops if (at := text.find(stop)) >= 0), default=len(text))
    text = text[:cut]
    found: list[TaggedObject] = []
    calls: list[dict[str, Any]] = []
    for tag in tagged_objects(text, "tool_call") if has_tools else ():
        call = _call(tag.body)
        if call is None or len(calls) == MAX_TOOL_CALLS:  # one invalid call makes the whole reply text
            return Reply(text=text, finish_reason=finish_reason)
        found.append(tag)
        calls.append(call)
    if not calls:
        return Reply(text=text, finish_reason=finish_reason)
    return Reply(
        text=_without(text, found).strip(),
        tool_calls=calls,
        finish_reason="tool_calls" if finish_reason == "stop" else finish_reason,
    )


def completion_document(
    identity: str, *, created: int, model: str, reply: Reply, usage: dict[str, int], extension: dict[str, Any]
) -> dict[str, Any]:
    choice = {"index": 0, "message": reply.message, "finish_reason": reply.finish_reason, "logprobs": None}
    return {
        "id": identity, "object": "chat.completion", "created": created, "model": model, "choices": [choice],
        "usage": usage, "oolong": extension,
    }  # fmt: skip


def chunk_document(
    identity: str,
    *,
    created: int,
    model: str,
    delta: dict[str, Any] | None = None,
    finish_reason: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {
        "id": identity, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices,
        **more,
    }  # fmt: skip


def error_document(message: str, *, kind: str, code: str, param: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code, "param": param or None}}


def _check_sampling(document: Mapping[str, Any], temperature: float) -> None:
    requested = document.get("temperature")
    if requested is not None and (not isinstance(requested, int | float) or float(requested) != temperature):
        raise InvalidChatRequest(
            "temperature",
            f"temperature={requested!r} is not the run's {temperature:g}: the trainer divides logits by the run's "
            f"temperature, so tokens sampled at another would get wrong importance weights. "
            f"Send {temperature:g}, or leave it out",
        )
    for name, neutral in _NEUTRAL.items():
        value = document.get(name)
        if value is not None and value not in neutral:
            allowed = f"leave it out, or at {neutral[0]!r}" if neutral else "leave it out"
            raise InvalidChatRequest(
                name, f"{name}={value!r} is rejected: {_REASONS.get(name, _DISTRIBUTION)}; {allowed}"
            )


def _message(message: Any, index: int) -> dict[str, Any]:
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise InvalidChatRequest(f"messages.{index}.role", f"a message needs a role of {', '.join(ROLES)}")
    plain: dict[str, Any] = {
        "role": ROLES[message["role"]],
        "content": _content(message.get("content"), index),
    }
    calls = message.get("tool_calls")
    if calls:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            raise InvalidChatRequest(f"messages.{index}.tool_calls", "tool_calls must be a list of objects")
        plain["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if isinstance(message.get(name), str):
            plain[name] = message[name]
    return plain


def _content(content: Any, index: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise InvalidChatRequest(
                f"messages.{index}.content", "only text is supported: a string, or parts of type text"
            )
        texts.append(part["text"])
    return "".join(texts)


def _tools(tools: Any) -> list[dict[str, Any]]:
    if not tools:
        return []
    if not isinstance(tools, list) or not all(
        isinstance(t, dict) and t.get("type") == "function" for t in tools
    ):
        raise InvalidChatRequest("tools", "tools must be a list of objects of type function")
    return tools


def _max_tokens(document: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = document.get(name)
        if value is not None:
            if type(value) is not int or value < 1:
                raise InvalidChatRequest(name, f"{name}={value!r}: must be an integer of at least 1")
            return value
    return None


def _stops(stop: Any) -> list[str]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or len(stops) > 4 or not all(isinstance(s, str) and s for s in stops):
        raise InvalidChatRequest("stop", f"stop={stop!r}: must be a string, or a list of up to four")
    return stops


def _without(text: str, parts: Sequence[TaggedObject]) -> str:
    ends = [0, *(part.end for part in parts)]
    starts = [*(part.start for part in parts), len(text)]
    return "".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _call(text: str) -> dict[str, Any] | None:
    """Parse a tool call that the policy wrote; None if it is invalid and stays text."""
    try:
        call = parse_json(text)
    except ValueError:
        return None
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return None
    arguments = json.dumps(call.get("arguments", {}), ensure_ascii=False)
    return {
        "id": f"call_{secrets.token_hex(8)}",
        "type": "function",
        "function": {"name": call["name"], "arguments": arguments},
    }
