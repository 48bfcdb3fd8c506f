"""The turns that the policy sampled in a session, as a tree of tokens (pure; no engine, no HTTP).

An agent sends the whole conversation with every call. If it begins with the history of a recorded turn, the call
continues that turn: the sampled tokens are reused, never tokenized again, and only the messages after them are
rendered. If it begins with no recorded history, the agent has rewritten it, and the call starts a branch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oolong.untrusted import parse_json

TurnOrigin = Literal[
    "started",  # the session's first call
    "continued",  # continues the newest turn of a branch
    "forked",  # continues a turn that was continued before
    "history_rewritten",  # matches no recorded history: the whole conversation was rendered
]


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One sampled completion; all lists have length T."""

    token_ids: list[int]
    logprobs: list[float]
    versions: list[int]
    finish_reason: Literal["stop", "length"]
    interruptions: int = 0
    generate_seconds: float = 0.0


@dataclass(eq=False, kw_only=True)
class ConversationTurn:
    number: int  # in the session, from 0
    parent: ConversationTurn | None
    origin: TurnOrigin
    context_ids: list[int]  # environment tokens before it; for a root the whole rendered prompt
    sampled: Sampled
    history: tuple[str, ...]  # canonical tools and messages, up to and including this turn's reply
    children: int = 0

    @property
    def path(self) -> list[ConversationTurn]:
        """From the root to this turn. Iterative: a session may have more turns than the recursion limit."""
        turns, turn = [self], self.parent
        while turn is not None:
            turns.append(turn)
            turn = turn.parent
        return turns[::-1]

    @property
    def token_ids(self) -> list[int]:
        """All tokens up to the end of this turn, as the engine saw them."""
        return [token for turn in self.path for token in (*turn.context_ids, *turn.sampled.token_ids)]


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """The position in the tree that a call continues."""

    parent: ConversationTurn | None
    origin: TurnOrigin
    new_messages: int  # trailing messages that are not in the parent's tokens


@dataclass
class ConversationTree:
    turns: list[ConversationTurn] = field(default_factory=list)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(turn.sampled.token_ids) for turn in self.turns)

    @property
    def leaves(self) -> list[ConversationTurn]:
        return [turn for turn in self.turns if turn.children == 0]

    def locate(self, history: Sequence[str]) -> Continuation:
        """Find the turn with the longest history that the conversation begins with; the newest among equals."""
        best: ConversationTurn | None = None
        for turn in self.turns:
            length = len(turn.history)
            if length < len(history) and tuple(history[:length]) == turn.history:
                best = turn if best is None or length >= len(best.history) else best
        if best is not None:
            origin: TurnOrigin = "forked" if best.children else "continued"
            return Continuation(parent=best, origin=origin, new_messages=len(history) - len(best.history))
        origin = "history_rewritten" if self.turns else "started"
        return Continuation(parent=None, origin=origin, new_messages=len(history) - 1)

    def add(
        self,
        at: Continuation,
        *,
        context_ids: list[int],
        sampled: Sampled,
        history: Sequence[str],
        reply: str,
    ) -> ConversationTurn:
        """Append a turn. Its origin is determined again, because a concurrent call may have continued the same turn."""
        origin = at.origin
        if at.parent is not None:
            origin = "forked" if at.parent.children else "continued"
            at.parent.children += 1
        turn = ConversationTurn(
            number=len(self.turns),
            parent=at.parent,
            origin=origin,
            context_ids=context_ids,
            sampled=sampled,
            history=(*history, reply),
        )
        self.turns.append(turn)
        return turn


def history_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tools and messages in canonical form, so that differences between clients do not matter."""
    return [json.dumps(list(tools), sort_keys=True), *(canonical(message) for message in messages)]


def canonical(message: Mapping[str, Any]) -> str:
    """Role, text and tool arguments, without call ids and empty fields."""
    calls = [
        [call.get("function", {}).get("name"), arguments_of(call)] for call in message.get("tool_calls") or []
    ]
    return json.dumps([message.get("role"), message.get("content") or "", calls], sort_keys=True)


def arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments of a tool call as a value; text that is not JSON stays text."""
    arguments = call.get("function", {}).get("arguments")
    if not isinstance(arguments, str):
        return arguments
    try:
        return parse_json(arguments)
    except ValueError:
        return arguments
