"""Chats with models on free slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import call
from oolong.client.endpoints.call import Call
from oolong.client.models import Page, Playground, ReplyScore


def page() -> Call[Page[Playground]]:
    return call.page("playgrounds", Playground)


def get(playground_id: str) -> Call[Playground]:
    return call.get("playgrounds/{}", Playground, playground_id)


def create(
    models: Sequence[Mapping[str, str]], *, idle_seconds: int, reward: Mapping[str, Any] | None
) -> Call[Playground]:
    body = {"models": [dict(model) for model in models], "idle_seconds": idle_seconds, "reward": reward}
    return call.post("playgrounds", Playground, body=body)


def close(playground_id: str) -> Call[None]:
    return call.delete("playgrounds/{}", playground_id)


def chat(run_id: str, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]) -> Call[bytes]:
    """Streamed, as server-sent events in OpenAI's form; `client.playgrounds.chat` reads them."""
    body = {"messages": [dict(message) for message in messages], "stream": True, **options}
    return Call("POST", call.filled("runs/{}/playground/chat/completions", (run_id,)), bytes, body=body)


def score(
    run_id: str, messages: Sequence[Mapping[str, str]], completion: str, answer: str
) -> Call[ReplyScore]:
    body = {
        "messages": [dict(message) for message in messages],
        "completion": completion,
        "answer": answer,
    }
    return Call("POST", call.filled("runs/{}/playground/score", (run_id,)), ReplyScore, body=body)
