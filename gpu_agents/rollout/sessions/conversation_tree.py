"""What an agent's calls have made the policy say, token by token: a tree of turns (pure; no engine, no HTTP).

An agent sends the whole conversation with every call. Where it begins with what a turn was told and answered, that
turn is gone on from: its tokens stand as they were sampled, and only the messages after it are rendered. They are
never tokenised again. A conversation that begins like no turn was rewritten by the agent, and starts a branch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oolong.untrusted import parse_json

TurnOrigin = Literal[
    "started",  # the session's first call
    "continued",  # goes on from the newest turn of a branch
    "forked",  # goes on from a turn that was gone on from before
    "history_rewritten",  # begins like nothing so far: the whole conversation was rendered anew
]


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """What the policy said in one go; all lists have length T."""

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
    beginning: TurnOrigin
    context_ids: list[int]  # what the environment said before it: of a root the whole rendered prompt
    sampled: Sampled
    history: tuple[str, ...]  # canonical tools and messages up to this turn's reply, the reply included
    children: int = 0

    @property
    def path(self) -> list[ConversationTurn]:
        """From the root to this turn. A loop: a session may have more turns than Python has frames."""
        turns, turn = [self], self.parent
        while turn is not None:
            turns.append(turn)
            turn = turn.parent
        return turns[::-1]

    @property
    def token_ids(self) -> list[int]:
        """Everything up to the end of this turn, as the engine had it."""
        return [token for turn in self.path for token in (*turn.context_ids, *turn.sampled.token_ids)]


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """Where a call goes on."""

    parent: ConversationTurn | None
    beginning: TurnOrigin
    new_messages: int  # this many at the end of the conversation are not in the parent's tokens


@dataclass
class ConversationTree:
    turns: list[ConversationTurn] = field(default_factory=list)

    @property
    def sampled_tokens(self) -> int:
        return sum(len(turn.sampled.token_ids) for turn in self.turns)

    @property
    def leaves(self) -> list[ConversationTurn]:
        return [turn for turn in self.turns if turn.children == 0]

    def place(self, history: Sequence[str]) -> Continuation:
        """The turn with the longest history that the conversation begins with; of equals the newest."""
        best: ConversationTurn | None = None
        for turn in self.turns:
            length = len(turn.history)
            if length < len(history) and tuple(history[:length]) == turn.history:
                best = turn if best is None or length >= len(best.history) else best
        if best is not None:
            beginning: TurnOrigin = "forked" if best.children else "continued"
            return Continuation(
                parent=best, beginning=beginning, new_messages=len(history) - len(best.history)
            )
        beginning = "history_rewritten" if self.turns else "started"
        return Continuation(parent=None, beginning=beginning, new_messages=len(history) - 1)

    def add(
        self,
        place: Continuation,
        *,
        context_ids: list[int],
        sampled: Sampled,
        history: Sequence[str],
        reply: str,
    ) -> ConversationTurn:
        """`beginning` is judged again: a call beside this one may have gone on from the same turn meanwhile."""
        beginning = place.beginning
        if place.parent is not None:
            beginning = "forked" if place.parent.children else "continued"
            place.parent.children += 1
        turn = ConversationTurn(
            number=len(self.turns),
            parent=place.parent,
            beginning=beginning,
            context_ids=context_ids,
            sampled=sampled,
            history=(*history, reply),
        )
        self.turns.append(turn)
        return turn


def history_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tools and messages in a form in which equal means equal: what clients add or leave out does not count."""
    return [json.dumps(list(tools), sort_keys=True), *(canonical(message) for message in messages)]


def canonical(message: Mapping[str, Any]) -> str:
    """Role, text, and what tools are called with; ids of calls and empty fields are left out."""
    calls = [
        [call.get("function", {}).get("name"), arguments_of(call)] for call in message.get("tool_calls") or []
    ]
    return json.dumps([message.get("role"), message.get("content") or "", calls], sort_keys=True)


def arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments of a tool call as a value; text that is no JSON stays text."""
    arguments = call.get("function", {}).get("arguments")
    if not isinstance(arguments, str):
        return arguments
    try:
        return parse_json(arguments)
    except ValueError:
        return arguments
