"""Chat messages of a file's columns: prompts, and the two completions of a preference pair."""

from __future__ import annotations

from typing import Any

from control_plane.assets.datasets.cells import RowFault, check_text, sample

Messages = list[dict[str, str]]
ROLES = ("system", "user", "assistant", "tool")


def read_conversation(value: list[Any], column: str) -> Messages:
    """The messages of a cell, with role and content only."""
    messages = []
    for number, message in enumerate(value, start=1):
        where = f"message {number} of column {column!r}"
        if not isinstance(message, dict):
            raise RowFault(
                column,
                "wrong_type",
                f"column {column!r} must be text, or messages with role and content; found {sample(value)}",
            )
        if message.get("role") not in ROLES:
            raise RowFault(
                column, "role", f"{where} has the role {sample(message.get('role'))}; use {', '.join(ROLES)}"
            )
        content = check_text(message.get("content"), column, f"the content of {where}", wanted="text")
        messages.append({"role": str(message["role"]), "content": content})
    if not messages:
        raise RowFault(column, "empty", f"column {column!r} has no messages")
    return messages


def read_prompt(value: list[Any], column: str, *, system: str) -> Messages:
    """A prompt that is a conversation. Its own system message comes before the mapping's."""
    messages = read_conversation(value, column)
    if messages[-1]["role"] == "assistant":
        raise RowFault(
            column,
            "role",
            f"column {column!r} ends with a message of the assistant; a prompt ends with one of the user or of a tool",
        )
    if system and messages[0]["role"] != "system":
        return [{"role": "system", "content": system}, *messages]
    return messages


def read_completion(value: Any, column: str, prompt: Messages) -> Messages:
    """One side of a pair: a text, or the messages that follow the prompt. Where they begin with those of the prompt,
    the rest is taken."""
    if not isinstance(value, list):
        text = check_text(value, column, f"column {column!r}", wanted="text or messages")
        return [{"role": "assistant", "content": text}]
    messages = read_conversation(value, column)
    without_system = [message for message in prompt if message["role"] != "system"]
    for start in (prompt, without_system):
        if messages[: len(start)] == start:
            messages = messages[len(start) :]
            break
    roles = [message["role"] for message in messages]
    if "system" in roles or not roles or roles[0] != "assistant" or roles[-1] != "assistant":
        raise RowFault(
            column,
            "role",
            f"column {column!r} must begin with the prompt's messages or with one of the assistant, and end with one "
            f"of the assistant; behind the prompt it has the roles {', '.join(roles) or 'none'}",
        )
    return messages


def read_pair(
    row: dict[str, Any], chosen_column: str, rejected_column: str, prompt: Messages
) -> tuple[Messages, Messages] | None:
    """The better and the worse completion; None where both cells are empty."""
    values = {column: row.get(column) for column in (chosen_column, rejected_column)}
    absent = [column for column, value in values.items() if value is None]
    if len(absent) == 2:
        return None
    if absent:
        other = next(column for column in values if column not in absent)
        raise RowFault(
            absent[0],
            "half_pair",
            f"column {absent[0]!r} has no value and {other!r} has one; a pair needs both",
        )
    chosen, rejected = (read_completion(value, column, prompt) for column, value in values.items())
    if chosen == rejected:
        raise RowFault(
            rejected_column,
            "equal_pair",
            f"column {rejected_column!r} equals {chosen_column!r}; a pair needs a better and a worse completion: "
            + sample(chosen[-1]["content"]),
        )
    return chosen, rejected
