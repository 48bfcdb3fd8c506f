"""The messages of an uploaded workflow over its socket: one JSON object per line, tagged by `type`.

The worker replies to each call with {"episode", "added": ids that the call added to the context, "room_tokens"} and its
result, or with {"episode", "error": {"kind", "message"}}. It starts an episode with {"begin": number, ...} and
cancels one with {"drop": number}. Log-probabilities and versions never cross the socket.
"""

from __future__ import annotations

from typing import Annotated

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    key: str


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """The file is loaded. The worker starts no episode before."""


class Unusable(Message, frozen=True, kw_only=True, tag="unusable"):
    """The file raised an exception while it was loaded."""

    message: str


class OfEpisode(Message, frozen=True, kw_only=True):
    episode: int


class Sample(OfEpisode, frozen=True, kw_only=True, tag="sample"):
    prompt_ids: list[int] | None
    max_new_tokens: int | None


class Score(OfEpisode, frozen=True, kw_only=True, tag="score"):
    text: str | None


class Execute(OfEpisode, frozen=True, kw_only=True, tag="execute"):
    code: str
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1, le=65536)]


class AppendMessages(OfEpisode, frozen=True, kw_only=True, tag="append_messages"):
    messages: list[dict[str, str]]


class AppendEnvironmentTokens(OfEpisode, frozen=True, kw_only=True, tag="append_environment_tokens"):
    token_ids: list[int]


class Done(OfEpisode, frozen=True, kw_only=True, tag="done"):
    worth: float


class Failed(OfEpisode, frozen=True, kw_only=True, tag="failed"):
    kind: str
    message: str


Call = Sample | Score | Execute | AppendMessages | AppendEnvironmentTokens
AnyMessage = (
    Hello
    | Ready
    | Unusable
    | Sample
    | Score
    | Execute
    | AppendMessages
    | AppendEnvironmentTokens
    | Done
    | Failed
)

_decoder = msgspec.json.Decoder(AnyMessage)


def decode_line(line: bytes) -> AnyMessage:
    """Decode one message. Raises ValueError for an invalid line, also for one that is nested too deeply."""
    try:
        message: AnyMessage = _decoder.decode(line)
    except RecursionError as error:
        raise ValueError("the line is nested too deeply") from error
    return message
