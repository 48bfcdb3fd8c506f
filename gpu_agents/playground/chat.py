"""The chat completion parameters that the playground forwards to the engine (pure). Others are rejected by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_agents.rollout.sessions.openai_chat import InvalidChatRequest, parse_object

FORWARDED = frozenset(
    {
        "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "stream",
        "stream_options",
    }
)  # fmt: skip
IGNORED = frozenset({"model", "user", "n"})  # clients always send them; there is one model and one reply
ROLES = ("system", "user", "assistant")
DEFAULT_TOKENS = 512


def engine_request(body: bytes, *, model: str) -> dict[str, Any]:
    """Build the engine's request. Raises InvalidChatRequest, naming the parameter."""
    document = parse_object(body)
    unknown = sorted(set(document) - FORWARDED - IGNORED)
    if unknown:
        raise InvalidChatRequest(
            unknown[0],
            f"{unknown[0]} is not supported by the playground; supported are {', '.join(sorted(FORWARDED))}",
        )
    if document.get("n", 1) != 1:
        raise InvalidChatRequest("n", f"n={document['n']!r}: one reply at a time")
    _check_messages(document.get("messages"))
    request = {name: value for name, value in document.items() if name in FORWARDED}
    if "max_tokens" not in request and "max_completion_tokens" not in request:
        request["max_tokens"] = DEFAULT_TOKENS
    return {**request, "model": model}


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise InvalidChatRequest("messages", "messages must be a list with at least one message")
    for index, message in enumerate(messages):
        valid = (
            isinstance(message, Mapping)
            and message.get("role") in ROLES
            and isinstance(message.get("content"), str)
        )
        if not valid:
            raise InvalidChatRequest(
                f"messages.{index}",
                f"message {index} needs a role ({', '.join(ROLES)}) and a text as content",
            )
