"""Chats with models on free slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oolong.client.endpoints import request_spec
from oolong.client.endpoints.request_spec import RequestSpec
from oolong.client.models import Page, Playground, ReplyScore


def page() -> RequestSpec[Page[Playground]]:
    return request_spec.page("playgrounds", Playground)


def get(playground_id: str) -> RequestSpec[Playground]:
    return request_spec.get("playgrounds/{}", Playground, playground_id)


def create(
    models: Sequence[Mapping[str, str]], *, idle_seconds: int, reward: Mapping[str, Any] | None
) -> RequestSpec[Playground]:
    body = {"models": [dict(model) for model in models], "idle_seconds": idle_seconds, "reward": reward}
    return request_spec.post("playgrounds", Playground, body=body)


def close(playground_id: str) -> RequestSpec[None]:
    return request_spec.delete("playgrounds/{}", playground_id)


def chat(
    run_id: str, messages: Sequence[Mapping[str, str]], options: Mapping[str, Any]
) -> RequestSpec[bytes]:
    """Streamed, as server-sent events in OpenAI's form; `client.playgrounds.chat` reads them."""
    body = {"messages": [dict(message) for message in messages], "stream": True, **options}
    return RequestSpec(
        "POST", request_spec.format_path("runs/{}/playground/chat/completions", (run_id,)), bytes, body=body
    )


def score(
    run_id: str, messages: Sequence[Mapping[str, str]], completion: str, answer: str
) -> RequestSpec[ReplyScore]:
    body = {
        "messages": [dict(message) for message in messages],
        "completion": completion,
        "answer": answer,
    }
    return RequestSpec(
        "POST", request_spec.format_path("runs/{}/playground/score", (run_id,)), ReplyScore, body=body
    )
