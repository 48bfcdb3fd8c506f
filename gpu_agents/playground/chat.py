"""What of OpenAI's chat completions the playground passes on (pure): everything else is refused by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oolong.untrusted import parse_json

PASSED = frozenset(
    {
        "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "stream",
        "stream_options",
    }
)  # fmt: skip
IGNORED = frozenset({"model", "user", "n"})  # clients send them always; there is one model and one reply
ROLES = ("system", "user", "assistant")
DEFAULT_TOKENS = 512


class ChatRefused(Exception):
    """Answered with 400 in OpenAI's form."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


def engine_request(body: bytes, *, model: str) -> dict[str, Any]:
    """The body for the engine. Raises ChatRefused, naming the parameter."""
    try:
        document = parse_json(body)
    except ValueError as error:
        raise ChatRefused("", f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ChatRefused("", "the body is no JSON object")
    unknown = sorted(set(document) - PASSED - IGNORED)
    if unknown:
        raise ChatRefused(
            unknown[0], f"{unknown[0]} is not of the playground; it takes {', '.join(sorted(PASSED))}"
        )
    if document.get("n", 1) != 1:
        raise ChatRefused("n", f"n={document['n']!r}: one reply at a time")
    _check_messages(document.get("messages"))
    kept = {name: value for name, value in document.items() if name in PASSED}
    if "max_tokens" not in kept and "max_completion_tokens" not in kept:
        kept["max_tokens"] = DEFAULT_TOKENS
    return {**kept, "model": model}


def _check_messages(messages: Any) -> None:
    if not isinstance(messages, list) or not messages:
        raise ChatRefused("messages", "messages must be a list with at least one message")
    for place, message in enumerate(messages):
        fit = (
            isinstance(message, Mapping)
            and message.get("role") in ROLES
            and isinstance(message.get("content"), str)
        )
        if not fit:
            raise ChatRefused(
                f"messages.{place}",
                f"message {place} needs a role ({', '.join(ROLES)}) and a text as content",
            )


def error_document(message: str, *, code: str, param: str = "") -> dict[str, Any]:
    return {"error": {"message": message, "type": "playground_error", "code": code, "param": param or None}}
